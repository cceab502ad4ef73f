// Results: pictures, tables, and their export. It shows what the server computed.

import { element } from './editor.js';

/** A picture of the server, without its style: chart.css has it, and follows the theme of the page. */
function inline(svg, name) {
  const bare = svg.replace(/<style>[^]*?<\/style>/, '');
  const parsed = new DOMParser().parseFromString(bare, 'image/svg+xml');
  return element('div', { class: `chart ${name}` }, document.importNode(parsed.documentElement, true));
}

/** Both sizes of a picture; the style sheet shows one of them. */
export function pictures(answer) {
  return element('div', { class: 'pictures' }, inline(answer.svg, 'at-wide'), inline(answer.narrow_svg, 'at-narrow'));
}

/** The colour of a policy in the picture of plans. */
export function swatch(index) {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10" width="10" height="10"><rect class="a${index}" width="10" height="10" rx="2"/></svg>`;
  const made = inline(svg, 'swatch');
  made.setAttribute('aria-hidden', 'true');
  return made;
}

// Between a number and its unit is a no-break space.
export const percent = (share) => `${(share * 100).toFixed(2)}\u00a0%`;
export const times = (number) => `${number.toFixed(2)}\u00a0×`;
export const rate = (number) => `${Math.round(number).toLocaleString('en')}/s`;

/** A time in seconds. */
export function seconds(time) {
  if (time === null || time === undefined) return '–';
  if (time === 0) return '0';
  if (time < 1) return `${Number((time * 1000).toPrecision(3))}\u00a0ms`;
  return `${Number(time.toPrecision(4))}\u00a0s`;
}

/**
 * A table that compares policies. A column has a title, the text of a cell, and for a bar below the text
 * its number. `heads` are the swatch and the sentence of each policy, if it has them.
 */
export function table(caption, policies, columns, heads) {
  const most = columns.map(({ bar }) => (bar ? Math.max(...policies.map(bar)) : 0));
  const cell = (policy) => ({ title, text, bar, tone }, index) => {
    const made = element('td', { 'data-title': title, class: tone?.(policy) }, element('span', {}, text(policy)));
    if (bar) {
      const share = most[index] > 0 ? bar(policy) / most[index] : 0;
      const line = element('span', { class: 'bar', 'aria-hidden': 'true' });
      line.style.setProperty('--share', share);
      made.append(line);
    }
    return made;
  };
  const rows = policies.map((policy, index) => {
    const name = element('th', { scope: 'row' }, ...heads(policy, index));
    return element('tr', {}, name, ...columns.map(cell(policy)));
  });
  const titles = columns.map(({ title }) => element('th', { scope: 'col' }, title));
  return element('table', { class: 'figures' },
    element('caption', { class: 'hidden' }, caption),
    element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'Policy'), ...titles)),
    element('tbody', {}, ...rows));
}

/** Saves a text or blob as a file. */
export function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = element('a', { href: url, download: name });
  link.click();
  // The download has to begin first.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The pixels of a picture in its colours for light pages, as the command draws them. */
async function png(svg) {
  const light = svg.replace('@media(prefers-color-scheme:dark)', '@media not all');
  const url = URL.createObjectURL(new Blob([light], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = element('canvas');
    [canvas.width, canvas.height] = [image.naturalWidth * 2, image.naturalHeight * 2];
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => { canvas.toBlob(resolve, 'image/png'); });
  } finally {
    URL.revokeObjectURL(url);
  }
}

const button = (text, act) => {
  const made = element('button', { type: 'button' }, text);
  made.addEventListener('click', act);
  return made;
};

/** A command line with a button that copies it. */
export function command(line, note) {
  const copied = element('span', { class: 'note', role: 'status' });
  const copy = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(line);
      copied.textContent = 'Copied';
    } catch {
      // The browser did not allow it; the text is selected instead.
      getSelection().selectAllChildren(code);
      copied.textContent = 'Press Ctrl+C';
    }
  });
  copy.setAttribute('aria-label', 'Copy the command line');
  const code = element('code', {}, line);
  return element('div', { class: 'line' }, element('span', { class: 'note' }, note), code, copy, copied);
}

/** The buttons that save a result. */
export function exports(name, answer, ...more) {
  return element('div', { class: 'row exports', role: 'group', 'aria-label': 'Export' },
    element('span', { class: 'note' }, 'Export'),
    button('SVG', () => save(`${name}.svg`, answer.svg, 'image/svg+xml')),
    button('PNG', async () => save(`${name}.png`, await png(answer.svg))),
    button('JSON', () => save(`${name}.json`, `${JSON.stringify(answer.result)}\n`, 'application/json')),
    ...more.map(([text, act]) => button(text, act)));
}
