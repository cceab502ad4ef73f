// The page of `redial ui` in Debian's Chromium: what an engineer does on it, by mouse and by keyboard, light
// and dark, wide and on a phone. Every test also fails on an error in the console and on a request to
// another server.
//
// REDIAL is the program, REDIAL_SCREENSHOTS the folder for screenshots, CHROMIUM the browser.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { createInterface } from 'node:readline';

import { chromium } from 'playwright-core';

const REDIAL = resolve(process.env.REDIAL ?? 'target/release/redial');
const SCREENSHOTS = resolve(process.env.REDIAL_SCREENSHOTS ?? 'target/ui/screenshots');
/** Generous: the machine may have other work. */
const PATIENCE_MS = 60_000;

let browser;
let folder;

before(async () => {
  mkdirSync(SCREENSHOTS, { recursive: true });
  folder = mkdtempSync(join(tmpdir(), 'redial-ui-'));
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    // The page is ours, and a sandbox needs rights that a container may not have.
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync',
    ],
  });
});

after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts `redial ui` and resolves to the process and its address. */
async function serve() {
  const server = spawn(REDIAL, ['ui'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = createInterface({ input: server.stdout });
  const [url] = await new Promise((done, fail) => {
    lines.once('line', (line) => done([line]));
    server.once('exit', (code) => fail(new Error(`redial ui ended with ${code}`)));
  });
  return { server, url };
}

const ended = (server) => new Promise((done) => { server.once('exit', (code) => done(code)); });

/** A test on an open page. `allowed` are errors of the console that it provokes. */
function onPage(name, options, act) {
  const { allowed = [], ...context } = options;
  test(name, { timeout: 10 * PATIENCE_MS }, async () => {
    const { server, url } = await serve();
    const tab = await browser.newContext({ viewport: { width: 1440, height: 1000 }, acceptDownloads: true, ...context });
    const errors = [];
    const foreign = [];
    try {
      const page = await tab.newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      page.on('console', (message) => {
        const text = `${message.text()} ${message.location().url}`;
        if (['error', 'warning'].includes(message.type()) && !allowed.some((it) => text.includes(it))) errors.push(text);
      });
      page.on('pageerror', (error) => errors.push(String(error.stack)));
      tab.on('request', (request) => {
        const from = new URL(request.url());
        if (from.protocol !== 'blob:' && from.host !== new URL(url).host) foreign.push(request.url());
      });
      await page.goto(url);
      await page.locator('#plan-outcome svg').first().waitFor({ state: 'attached' });
      await act(page, { server, url });
      assert.deepEqual(errors, []);
      assert.deepEqual(foreign, []);
    } finally {
      await tab.close();
      const exit = ended(server);
      if (server.exitCode === null && server.kill('SIGINT')) assert.equal(await exit, 0);
    }
  });
}

const editorOf = (page) => page.getByRole('textbox', { name: 'Policy', exact: true });
const picture = (page) => page.locator('#plan-outcome .at-wide svg');
const rows = (page, id) => page.locator(`#${id} .figures tbody tr`);
const hasText = async (locator, text) => locator.filter({ hasText: text }).first().waitFor();
const isReady = (page) => page.locator('#plan-outcome:not(.stale)[aria-busy=false]').waitFor();

async function edit(page, from, to) {
  const editor = editorOf(page);
  const text = await editor.inputValue();
  assert.ok(text.includes(from), text);
  await editor.fill(text.replace(from, to));
}

async function addExample(page, title) {
  const { length } = await page.locator('#policy-tabs [role=tab]').all();
  await page.getByLabel('Start from').selectOption({ label: title });
  await page.getByRole('button', { name: 'Add policy' }).click();
  await page.locator('#policy-tabs [role=tab]').nth(length).waitFor();
}

/** Clicks a button and resolves to the content of the file that it saves. */
async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent('download'), button.click()]);
  const path = join(folder, `download-${Math.random()}`);
  await download.saveAs(path);
  const content = readFileSync(path);
  return { name: download.suggestedFilename(), content };
}

/** Runs a command line of the page beside these files, and returns its JSON. */
function command(line, files) {
  const own = mkdtempSync(join(folder, 'files-'));
  for (const { name, text } of files) writeFileSync(join(own, name), text);
  const script = `"$REDIAL" ${line.replace(/^redial /, '')} --json`;
  return JSON.parse(execFileSync('sh', ['-c', script], { cwd: own, env: { ...process.env, REDIAL }, maxBuffer: 1 << 28 }));
}

onPage('a mistake is underlined, the last valid picture stays, and a fix replaces it', {}, async (page) => {
  await isReady(page);
  await hasText(page.locator('#policy-summary'), 'No problem found');
  const before = await picture(page).innerHTML();
  await edit(page, '"0.1s"', '"100ms"');
  await hasText(page.locator('#policy-summary'), '1 error');
  const mark = page.locator('#policy-editor mark.error');
  assert.equal(await mark.textContent(), '"100ms"');
  // The mark is where the text area has the text: both have the same letters and the same origin.
  const style = (selector) => page.locator(selector).evaluate((it) => {
    const { font, padding, tabSize, whiteSpace } = getComputedStyle(it);
    const { x, y } = it.getBoundingClientRect();
    return { font, padding, tabSize, whiteSpace, x, y };
  });
  assert.deepEqual(await style('#policy-editor .marks'), await style('#policy-editor textarea'));
  assert.equal(await editorOf(page).getAttribute('aria-invalid'), 'true');
  await hasText(page.locator('#policy-findings li.error'), 'write "0.1s"');
  await hasText(page.locator('#plan-state'), 'Below is the last valid plan. service-config.json has 1 error.');
  assert.equal(await picture(page).innerHTML(), before);
  assert.equal(await page.locator('#policy-summary').getAttribute('aria-live'), 'polite');
  // The place in the list selects it in the editor.
  await page.getByRole('button', { name: 'Go to line 7, column 25' }).click();
  const selected = await editorOf(page).evaluate((it) => it.value.slice(it.selectionStart, it.selectionEnd));
  assert.equal(selected, '"100ms"');
  await page.screenshot({ path: join(SCREENSHOTS, 'problem-light.png'), fullPage: true });
  await page.getByText('Dark', { exact: true }).click();
  await page.screenshot({ path: join(SCREENSHOTS, 'problem-dark.png'), fullPage: true });
  await page.getByText('Light', { exact: true }).click();
  await edit(page, '"100ms"', '"0.3s"');
  await isReady(page);
  await page.waitForFunction((old) => document.querySelector('#plan-outcome .at-wide svg').innerHTML !== old, before);
  await hasText(page.locator('#policy-summary'), 'No problem found');
  assert.equal(await page.locator('#policy-editor mark').count(), 0);
  assert.equal(await page.locator('#plan-state').textContent(), '');
});

onPage('positions count characters, also beyond the basic plane', {}, async (page) => {
  await editorOf(page).fill('{ "name": "a😀ü", "attempst": 3, "deadline": "1s" }');
  await hasText(page.locator('#policy-summary'), 'error');
  assert.deepEqual(await page.locator('#policy-editor mark.error').allTextContents(), ['"attempst"']);
  await editorOf(page).fill('{ "attempts": 3');
  await hasText(page.locator('#policy-findings li.error'), 'json');
  assert.ok((await page.locator('#policy-editor mark').first().textContent()).length > 0);
});

onPage('other languages, fields and names are checked as they change', {}, async (page) => {
  await addExample(page, 'gRPC service config with hedging');
  await page.getByLabel('Go', { exact: true }).check();
  await hasText(page.locator('#policy-findings li.warning'), 'in Go: hedgingPolicy is ignored');
  assert.match(await page.locator('#check-command code').textContent(), / --for go$/);
  await page.getByLabel('Attempts that fail', { exact: true }).fill('140');
  await hasText(page.locator('#failure-rate-problem'), 'write a number from 0 to 1');
  await hasText(page.locator('#plan-state'), 'Check the field “Attempts that fail”.');
  await page.getByLabel('Attempts that fail', { exact: true }).fill('50');
  await page.getByLabel('Latency of an attempt').fill('soon');
  await page.locator('#latency[aria-invalid=true]').waitFor();
  await page.getByLabel('Latency of an attempt').fill('50ms');
  await isReady(page);
  await hasText(page.locator('#plan-outcome .line code'), '--failure-rate 0.5 --latency 50ms');
  await page.getByLabel('Method of the service configs').fill('/other.Service/Get');
  await hasText(page.locator('#plan-state'), 'no entry of the service config matches');
  await page.getByLabel('Method of the service configs').fill('/shop.Orders/Get');
  await isReady(page);
  await page.getByLabel('File name').fill('a/b.json');
  await hasText(page.locator('#policy-name-problem'), 'is no name of a file here');
  await page.getByLabel('File name').fill('service-config.json');
  await hasText(page.locator('#policy-name-problem'), 'another policy is called');
});

onPage('four policies are compared, and a fifth is not possible', {}, async (page) => {
  const titles = ['Retries with the default budget (JSON)', 'Retries without a budget (TOML)', 'Hedging after 40 ms (JSON)'];
  for (const title of titles) await addExample(page, title);
  await rows(page, 'plan-outcome').nth(3).waitFor();
  const names = await page.locator('#plan-outcome .figures tbody th').allTextContents();
  assert.deepEqual(names, ['service-config', 'retries', 'no-budget', 'hedged']);
  const drawn = await picture(page).getAttribute('aria-label');
  assert.equal(drawn, 'Plan of service-config and retries and no-budget and hedged');
  assert.ok(await page.getByRole('button', { name: 'Add policy' }).isDisabled());
  await isReady(page);
  await page.screenshot({ path: join(SCREENSHOTS, 'plan-light.png'), fullPage: true });
  await page.getByText('Dark', { exact: true }).click();
  await page.screenshot({ path: join(SCREENSHOTS, 'plan-dark.png'), fullPage: true });
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.waitForFunction(() => document.querySelectorAll('#plan-outcome .figures tbody tr').length === 3);
  // A file of this machine, and a name that is there already.
  await page.locator('#policy-file').setInputFiles({
    name: 'retries.json', mimeType: 'application/json', buffer: Buffer.from('{ "attempts": 2 }'),
  });
  await rows(page, 'plan-outcome').nth(3).waitFor();
  assert.equal((await page.locator('#plan-outcome .figures tbody th').allTextContents())[3], 'retries-2');
});

onPage('an outage is simulated for the policies of the page and for those of the file', {}, async (page) => {
  await addExample(page, 'Retries without a budget (TOML)');
  await page.getByRole('tab', { name: 'Simulate' }).click();
  await page.getByRole('button', { name: 'Run' }).click();
  await rows(page, 'simulation-outcome').nth(1).waitFor();
  const own = await page.locator('#simulation-outcome .figures tbody .name').allTextContents();
  assert.deepEqual(own, ['service-config', 'no-budget']);
  await hasText(page.locator('#simulation-state'), 'Done: 2 policies compared.');
  await hasText(page.locator('#simulation-outcome .line code'), 'redial simulate metastability-compared.json');
  await page.screenshot({ path: join(SCREENSHOTS, 'simulate-light.png'), fullPage: true });
  await page.getByLabel('the policies of the simulation file').check();
  await hasText(page.locator('#simulation-state'), 'Run again');
  await page.locator('#simulation-outcome.stale').waitFor();
  await page.getByRole('button', { name: 'Run' }).click();
  await rows(page, 'simulation-outcome').nth(4).waitFor();
  const recovered = page.locator('#simulation-outcome .figures tbody td:nth-of-type(1)');
  assert.equal((await recovered.allTextContents())[1], 'not within the run');
  await hasText(page.locator('#simulation-outcome .verdict'), 'retries kept offered load at 1.9 times capacity');
  await page.getByText('Dark', { exact: true }).click();
  await page.screenshot({ path: join(SCREENSHOTS, 'simulate-dark.png'), fullPage: true });
  // A mistake in the file: the last result stays.
  await page.locator('#simulation-details summary').click();
  const editor = page.getByRole('textbox', { name: 'Simulation file' });
  await editor.fill((await editor.inputValue()).replace('"200s"', '"200 parsecs"'));
  await hasText(page.locator('#simulation-summary'), '1 error');
  assert.equal(await page.locator('#simulation-editor mark.error').textContent(), '"200 parsecs"');
  await page.getByRole('button', { name: 'Run' }).click();
  await hasText(page.locator('#simulation-state'), 'Below is the last valid result.');
  assert.equal(await rows(page, 'simulation-outcome').count(), 5);
});

/** Starts a run that takes minutes. */
async function startLong(page) {
  await page.getByRole('tab', { name: 'Simulate' }).click();
  await page.locator('#simulation-details summary').click();
  const editor = page.getByRole('textbox', { name: 'Simulation file' });
  const text = (await editor.inputValue()).replace('"200s"', '"5d"').replace('"1s"', '"10m"');
  await editor.fill(text.replace('stall', 'refuse'));
  await page.getByRole('button', { name: 'Run' }).click();
  await page.waitForFunction(() => document.querySelector('#progress').value > 0);
}

onPage('a long run shows its progress, and ends when it is stopped or its page is closed', {}, async (page, { url }) => {
  await startLong(page);
  await hasText(page.locator('#progress-text'), '%');
  await page.getByRole('button', { name: 'Stop' }).click();
  await hasText(page.locator('#simulation-state'), 'Stopped.');
  assert.ok(await page.locator('#progress').isHidden());
  // The server has one run at a time: the next one has its turn only if the first has stopped.
  await page.getByLabel('Outage scenario').selectOption('layers');
  await page.getByRole('button', { name: 'Run' }).click();
  await rows(page, 'simulation-outcome').first().waitFor();
  const other = await page.context().newPage();
  await other.goto(url);
  await other.locator('#plan-outcome svg').first().waitFor({ state: 'attached' });
  await startLong(other);
  await other.close();
  await page.getByRole('button', { name: 'Run' }).click();
  await hasText(page.locator('#simulation-state'), 'Done');
});

onPage('exports are what the commands print', { colorScheme: 'dark' }, async (page) => {
  await addExample(page, 'Retries without a budget (TOML)');
  await page.waitForFunction(() => document.querySelectorAll('#plan-outcome .figures tbody tr').length === 2);
  await isReady(page);
  const plan = page.locator('#plan-outcome');
  const svg = await saved(page, plan.getByRole('button', { name: 'SVG' }));
  assert.equal(svg.name, 'plan.svg');
  assert.match(svg.content.toString(), /^<svg [^>]*width="760"[^]*<style>[^]*prefers-color-scheme:dark/);
  const png = await saved(page, plan.getByRole('button', { name: 'PNG' }));
  assert.equal(png.name, 'plan.png');
  assert.equal(png.content.subarray(1, 4).toString(), 'PNG');
  assert.equal(png.content.readUInt32BE(16), 1520);
  // In light colours, whatever the page has.
  const pixel = await page.evaluate(async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (it) => it.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes]));
    const canvas = new OffscreenCanvas(1, 1);
    canvas.getContext('2d').drawImage(image, 0, 0);
    return [...canvas.getContext('2d').getImageData(0, 0, 1, 1).data];
  }, png.content.toString('base64'));
  assert.deepEqual(pixel, [255, 255, 255, 255]);
  writeFileSync(join(SCREENSHOTS, 'export.png'), png.content);
  const json = JSON.parse((await saved(page, plan.getByRole('button', { name: 'JSON' }))).content);
  const files = [];
  for (const tab of await page.locator('#policy-tabs [role=tab]').all()) {
    await tab.click();
    const { name, content } = await saved(page, page.getByRole('button', { name: 'Save' }));
    files.push({ name, text: content });
  }
  assert.deepEqual(files.map((it) => it.name), ['service-config.json', 'no-budget.toml']);
  assert.deepEqual(json, command(await plan.locator('.line code').textContent(), files));
  const check = JSON.parse((await saved(page, page.getByRole('button', { name: 'Export JSON' }))).content);
  assert.deepEqual(check, command(await page.locator('#check-command code').textContent(), files));
  // A comparison in an outage is a file of its own.
  await page.getByRole('tab', { name: 'Simulate' }).click();
  await page.getByLabel('Outage scenario').selectOption('retry-storm');
  await page.getByRole('spinbutton', { name: 'Seed' }).fill('5');
  await page.getByRole('button', { name: 'Run' }).click();
  await rows(page, 'simulation-outcome').nth(1).waitFor();
  const outcome = page.locator('#simulation-outcome');
  const file = await saved(page, outcome.getByRole('button', { name: 'Simulation file' }));
  const line = await outcome.locator('.line code').textContent();
  assert.equal(line, 'redial simulate retry-storm-compared.json --seed 5');
  const run = JSON.parse((await saved(page, outcome.getByRole('button', { name: 'JSON' }))).content);
  assert.deepEqual(run, command(line, [{ name: file.name, text: file.content }]));
});

onPage('everything can be done with the keyboard', {}, async (page) => {
  const press = async (...keys) => { for (const key of keys) await page.keyboard.press(key); };
  /** The name of what has the focus, which must be visible. */
  const focused = () => page.evaluate(() => {
    const it = document.activeElement;
    const shown = it.type === 'radio' && it.closest('.theme') ? it.nextElementSibling : it;
    const box = it.closest('.editor');
    const style = getComputedStyle(shown);
    const isVisible = style.outlineStyle !== 'none' || (box && getComputedStyle(box).boxShadow !== 'none');
    const name = it.getAttribute('aria-label') ?? it.labels?.[0]?.textContent.trim() ?? it.textContent.trim();
    return { name: name.replace(/\s+/g, ' '), isVisible };
  });
  const visited = [];
  const tabTo = async (name) => {
    for (let count = 0; count < 60; count += 1) {
      await press('Tab');
      const at = await focused();
      assert.ok(at.isVisible, `the focus on ${at.name} is not visible`);
      visited.push(at.name);
      if (at.name.startsWith(name)) return;
    }
    assert.fail(`${name} is not reached: ${visited.join(', ')}`);
  };
  await page.evaluate(() => document.activeElement?.blur());
  await tabTo('Skip to the results');
  await tabTo('Auto');
  await press('ArrowRight');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  await tabTo('service-config.json');
  await tabTo('File name');
  await tabTo('Policy');
  // The editor is no trap, and typing is checked.
  await press('Control+End');
  await page.keyboard.type('x');
  await hasText(page.locator('#policy-summary'), '1 error');
  await tabTo('Go to line');
  await press('Enter');
  assert.equal((await focused()).name, 'Policy');
  await press('Control+End', 'Backspace');
  await hasText(page.locator('#policy-summary'), 'No problem found');
  await tabTo('Start from');
  await press('ArrowDown', 'ArrowDown');
  await tabTo('Add policy');
  await press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('#plan-outcome .figures tbody tr').length === 2);
  // From the new editor to the results.
  await tabTo('Plan');
  await press('ArrowRight');
  assert.equal((await focused()).name, 'Simulate');
  await tabTo('Outage scenario');
  await page.keyboard.type('layers');
  await tabTo('Run');
  await press('Enter');
  await rows(page, 'simulation-outcome').nth(1).waitFor();
  await press('Control+Enter');
  await hasText(page.locator('#simulation-state'), 'Done');
});

for (const colorScheme of ['light', 'dark']) {
  onPage(`a phone of 360 px needs no horizontal scrolling, ${colorScheme}`, { viewport: { width: 360, height: 760 }, colorScheme }, async (page) => {
    const width = () => page.evaluate(() => document.scrollingElement.scrollWidth);
    await addExample(page, 'Retries without a budget (TOML)');
    await page.waitForFunction(() => document.querySelectorAll('#plan-outcome .figures tbody tr').length === 2);
    assert.ok(await page.locator('#plan-outcome .at-narrow svg').isVisible());
    assert.equal(await width(), 360);
    const letters = await page.locator('#plan-outcome .at-narrow svg .note').first().evaluate((it) => it.getBoundingClientRect().height);
    assert.ok(letters >= 11, `letters of ${letters} px`);
    await isReady(page);
    await page.screenshot({ path: join(SCREENSHOTS, `phone-plan-${colorScheme}.png`), fullPage: true });
    await editorOf(page).fill('attempts = "many"\nbackoff = 1');
    await hasText(page.locator('#policy-summary'), 'error');
    assert.equal(await width(), 360);
    await page.getByRole('tab', { name: 'Simulate' }).click();
    await page.getByLabel('the policies of the simulation file').check();
    await page.getByRole('button', { name: 'Run' }).click();
    await rows(page, 'simulation-outcome').nth(4).waitFor();
    await page.locator('#simulation-details summary').click();
    assert.equal(await width(), 360);
    await page.screenshot({ path: join(SCREENSHOTS, `phone-simulate-${colorScheme}.png`), fullPage: true });
  });
}

for (const colorScheme of ['light', 'dark']) {
  onPage(`texts have enough contrast, ${colorScheme}`, { colorScheme }, async (page) => {
    await edit(page, '"0.1s"', '"100ms"');
    await hasText(page.locator('#policy-summary'), '1 error');
    const low = await page.evaluate(() => {
      const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
      const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
      };
      const luminance = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map((it) => it / 255).map((it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
      };
      const behind = (it) => {
        for (let at = it; at; at = at.parentElement) {
          const color = rgba(getComputedStyle(at).backgroundColor);
          if (color[3] === 255) return color;
        }
        return [255, 255, 255];
      };
      const texts = [...document.querySelectorAll('body *')].filter((it) => (
        it.checkVisibility() && !it.closest('svg, .marks, .stale, :disabled, .skip')
        && [...it.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())));
      return texts.flatMap((it) => {
        const [a, b] = [luminance(rgba(getComputedStyle(it).color)), luminance(behind(it))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return ratio < 4.5 ? [`${it.textContent.trim()} ${ratio.toFixed(2)}`] : [];
      });
    });
    assert.deepEqual(low, []);
  });
}

onPage('a server that has ended is reported', { allowed: ['ERR_CONNECTION_REFUSED'] }, async (page, { server }) => {
  await isReady(page);
  const exit = ended(server);
  server.kill('SIGINT');
  assert.equal(await exit, 0);
  await edit(page, '"0.1s"', '"0.2s"');
  await hasText(page.getByRole('alert'), 'The server does not answer.');
});
