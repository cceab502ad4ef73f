// The state of the page, and what happens on input. Everything is computed by the server.

import { Editor, element, list, summary } from './editor.js';
import { command, exports, percent, pictures, rate, save, seconds, swatch, table, times } from './figures.js';
import { ask, lines, ServerError } from './server.js';

/** How long after the last input the server is asked, in milliseconds. */
const PAUSE_MS = 200;

const $ = (id) => document.getElementById(id);
/** A message below the fields; a warning if the result below does not fit them. */
function say(id, text, isWarning = false) {
  if ($(id).textContent !== text) $(id).textContent = text;
  $(id).classList.toggle('warning', isWarning);
}

const stem = (name) => name.replace(/(.)\.[^.]*$/, '$1');

const state = {
  catalog: null,
  /** The policies: name, text, findings of the last check. */
  policies: [],
  current: 0,
  /** The finding of the simulation file, and whether a run fits what the page shows. */
  simulation: { name: '', text: '', findings: [] },
  plan: null,
  run: null,
};

// --- Requests that replace the one before ---

/** Runs the newest of several tasks; an older one is aborted, which stops it on the server. */
function newest() {
  let controller = null;
  return {
    abort: () => controller?.abort(),
    async start(work) {
      controller?.abort();
      const own = new AbortController();
      controller = own;
      try {
        return await work(own.signal);
      } catch (error) {
        if (own.signal.aborted) return undefined;
        if (!(error instanceof ServerError)) throw error;
        $('offline').textContent = error.message;
        $('offline').hidden = false;
        return undefined;
      } finally {
        if (controller === own) controller = null;
      }
    },
  };
}

const checking = newest();
const planning = newest();
const checkingSimulation = newest();
const running = newest();

async function answered(task, path, body) {
  const answer = await task.start((signal) => ask(path, body(), signal));
  if (answer) $('offline').hidden = true;
  return answer;
}

function later(act) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, PAUSE_MS);
  };
}

// --- Policies ---

const editor = new Editor($('policy-editor'), 'Policy', 'policy-summary', (text) => {
  state.policies[state.current].text = text;
  changed();
});

const files = () => state.policies.map(({ name, text }) => ({ name, text }));
const method = () => $('method').value.trim() || null;
const languages = () => [...document.querySelectorAll('[name=for]:checked')].map((box) => box.value);

function freeName(name) {
  const taken = new Set(state.policies.map((policy) => stem(policy.name)));
  if (!taken.has(stem(name))) return name;
  for (let number = 2; ; number += 1) {
    const next = `${stem(name)}-${number}${name.slice(stem(name).length)}`;
    if (!taken.has(stem(next))) return next;
  }
}

function add(name, text) {
  if (state.policies.length >= state.catalog.policies_max) return;
  state.policies.push({ name: freeName(name), text, findings: [] });
  select(state.policies.length - 1);
  changed();
}

function remove(index) {
  state.policies.splice(index, 1);
  select(Math.min(index, state.policies.length - 1));
  changed();
}

function select(index) {
  state.current = index;
  const policy = state.policies[index];
  $('policy-name').value = policy.name;
  editor.text = policy.text;
  showPolicies();
}

function showPolicies() {
  const { policies, current, catalog } = state;
  const tabs = policies.map((policy, index) => {
    const bad = policy.findings.filter((finding) => finding.severity === 'error').length;
    const tab = element('button', {
      type: 'button', role: 'tab', id: `policy-tab-${index}`, 'aria-controls': 'policy-panel',
      'aria-selected': String(index === current), tabindex: index === current ? '0' : '-1',
    }, swatch(index), policy.name || 'unnamed');
    if (bad) {
      tab.append(element('span', { class: 'badge', 'aria-label': `${bad} error${bad === 1 ? '' : 's'}` }, String(bad)));
    }
    tab.addEventListener('click', () => select(index));
    return tab;
  });
  const hadFocus = $('policy-tabs').contains(document.activeElement);
  $('policy-tabs').replaceChildren(...tabs);
  if (hadFocus) tabs[current].focus();
  $('policy-panel').setAttribute('aria-labelledby', `policy-tab-${current}`);
  const { findings, isChecked } = policies[current];
  editor.show(findings);
  $('policy-findings').replaceChildren(...list(findings, (finding) => editor.select(finding)));
  const text = isChecked === undefined ? '' : summary(findings);
  if ($('policy-summary').textContent !== text) $('policy-summary').textContent = text;
  $('policy-summary').className = `summary ${isChecked === undefined ? '' : worst(findings)}`;
  $('policy-remove').disabled = policies.length === 1;
  const isFull = policies.length >= catalog.policies_max;
  for (const id of ['policy-add', 'policy-open']) $(id).disabled = isFull;
  $('policies-note').textContent = `${policies.length} of ${catalog.policies_max}, side by side`;
  $('compare-page').textContent = policies.length === 1 ? 'the policy of this page' : `the ${policies.length} policies of this page`;
}

const worst = (findings) => ['error', 'warning', 'note'].find((name) => findings.some((it) => it.severity === name)) ?? 'good';

/** Something that check, plan or a simulation depends on has changed. */
function changed() {
  markRun();
  refresh();
}

const refresh = later(() => {
  checkPolicies();
  planPolicies();
});

async function checkPolicies() {
  const asked = state.policies.map((policy) => ({ policy, text: policy.text }));
  const answer = await answered(checking, 'api/check', () => ({ policies: files(), for: languages() }));
  if (!answer) return;
  const names = new Map((answer.problems ?? []).map((problem) => [problem.file, problem.text]));
  const own = state.policies[state.current];
  $('policy-name-problem').textContent = names.get(own.name) ?? '';
  $('check-command').hidden = !answer.command;
  if (answer.problems) return;
  // After new input the places are wrong, and another check follows.
  if (asked.some(({ policy, text }) => policy.text !== text)) return;
  asked.forEach(({ policy }, index) => {
    policy.findings = answer.result.files[index].findings;
    policy.isChecked = true;
  });
  showMethods(answer.methods);
  showPolicies();
  showPlanState();
  const report = () => save('check.json', `${JSON.stringify(answer.result, null, 2)}\n`, 'application/json');
  const json = element('button', { type: 'button' }, 'Export JSON');
  json.addEventListener('click', report);
  $('check-command').replaceChildren(command(answer.command, 'Check'), json);
}

function showMethods(methods) {
  $('methods').replaceChildren(...methods.map((value) => element('option', { value })));
  const isNeeded = methods.length > 0 || method() !== null;
  $('method-field').hidden = !isNeeded;
  // The first one is what most configs have. It is a start, until there is input.
  if (methods.length > 0 && !$('method').dataset.edited && methods[0] !== $('method').value) {
    [$('method').value] = methods;
    markRun();
    planPolicies();
  }
}

// --- Plan ---

const PLAN_FIELDS = ['method', 'failure_rate', 'latency'];

function planAsked() {
  const share = $('failure-rate').value.trim() === '' ? -1 : Number($('failure-rate').value) / 100;
  const latency = $('latency').value.trim();
  return {
    policies: files(), method: method(), failure_rate: share, latency: latency || null,
    seed: seedOf('plan-seed') ?? 1,
  };
}

function seedOf(id) {
  const text = $(id).value.trim();
  const seed = Number(text);
  return text !== '' && Number.isSafeInteger(seed) && seed >= 0 ? seed : null;
}

async function planPolicies() {
  $('plan-outcome').setAttribute('aria-busy', 'true');
  const answer = await answered(planning, 'api/plan', planAsked);
  if (!answer) return;
  $('plan-outcome').setAttribute('aria-busy', 'false');
  state.planProblems = answer.problems ?? [];
  const [first] = [...state.planProblems].filter((problem) => problem.field === 'method');
  if (first) $('method-field').hidden = false;
  for (const field of PLAN_FIELDS) {
    const problem = state.planProblems.find((it) => it.field === field);
    const id = field.replace('_', '-');
    $(`${id}-problem`).textContent = problem?.text ?? '';
    $(id).setAttribute('aria-invalid', String(Boolean(problem)));
  }
  if (!answer.problems) {
    state.plan = answer;
    showPlan(answer);
  }
  showPlanState();
}

/** What hinders a new plan. The picture stays that of the last valid texts. */
function showPlanState() {
  const problems = state.planProblems ?? [];
  const texts = problems.map(({ file, field, text }) => {
    const policy = state.policies.find((it) => it.name === file);
    const errors = policy?.findings.filter((it) => it.severity === 'error').length;
    if (errors) return `${file} has ${errors} error${errors === 1 ? '' : 's'}.`;
    if (field) return `Check the field “${document.querySelector(`label[for=${field.replace('_', '-')}]`).textContent}”.`;
    return /[.?]$/.test(text) ? text : `${text}.`;
  });
  const isStale = texts.length > 0 && state.plan;
  $('plan-outcome').classList.toggle('stale', Boolean(isStale));
  say('plan-state', [...new Set(isStale ? ['Below is the last valid plan.', ...texts] : texts)].join(' '), true);
}

function showPlan(answer) {
  const { plans } = answer.result;
  const at = `${Number((plans[0].failure_rate * 100).toFixed(2))}\u00a0%`;
  const outage = (plan) => plan.curve.at(-1).amplification;
  const worstTime = ({ seconds: time, has_time_limit: isLimited }) => {
    if (time !== null) return seconds(time);
    return isLimited ? 'too many to compute the time' : 'no time limit';
  };
  const worstCase = ({ worst_case: worst }) => (
    `${worst.attempts ?? 'no limit on'}\u00a0attempts, ${worstTime(worst)}`);
  const columns = [
    { title: `Calls that succeed, ${at} failing`, text: (plan) => percent(plan.success), bar: (plan) => plan.success },
    { title: `Load, ${at} failing`, text: (plan) => times(plan.amplification), bar: (plan) => plan.amplification },
    { title: 'Load, everything fails', text: (plan) => times(outage(plan)), bar: outage },
    { title: 'Gives up, typically', text: (plan) => seconds(plan.gives_up_after_seconds.typical) },
    { title: 'Worst case', text: worstCase },
    { title: 'p99, nothing fails', text: (plan) => seconds(plan.latency.p99_ms / 1000) },
  ];
  $('plan-outcome').replaceChildren(
    table('Comparison of the policies', plans, columns, ({ name }, index) => [element('span', { class: 'name' }, swatch(index), name)]),
    pictures(answer),
    exports('plan', answer),
    command(answer.command, 'Plan'),
  );
  $('plan-outcome').hidden = false;
}

// --- Simulate ---

const simulationEditor = new Editor($('simulation-editor'), 'Simulation file', 'simulation-summary', (text) => {
  state.simulation.text = text;
  markRun();
  refreshSimulation();
});

const refreshSimulation = later(checkSimulation);

async function checkSimulation() {
  const { name, text } = state.simulation;
  const answer = await answered(checkingSimulation, 'api/simulation/check', () => ({ simulation: { name, text } }));
  if (!answer || state.simulation.text !== text) return;
  showSimulationFindings(answer.findings);
}

function showSimulationFindings(findings) {
  state.simulation.findings = findings;
  simulationEditor.show(findings);
  $('simulation-findings').replaceChildren(...list(findings, (finding) => simulationEditor.select(finding)));
  const text = summary(findings);
  if ($('simulation-summary').textContent !== text) $('simulation-summary').textContent = text;
  $('simulation-summary').className = `summary ${worst(findings)}`;
  $('simulation-badge').hidden = findings.length === 0;
  $('simulation-badge').textContent = findings.length;
}

function chooseScenario() {
  const scenario = state.catalog.scenarios.find((it) => it.name === $('scenario').value);
  state.simulation = { name: `${scenario.name}.toml`, text: scenario.text, findings: [] };
  simulationEditor.text = scenario.text;
  $('scenario-shows').textContent = scenario.shows;
  showSimulationFindings([]);
  markRun();
}

const compares = () => document.querySelector('[name=compare]:checked').value;

function runAsked() {
  const isPage = compares() === 'page';
  const { name, text } = state.simulation;
  return {
    simulation: { name, text }, policies: isPage ? files() : null, method: isPage ? method() : null,
    seed: seedOf('simulation-seed'),
  };
}

/** Says whether the result below fits what the page would run now. */
function markRun() {
  const isStale = state.run && JSON.stringify(runAsked()) !== state.run;
  $('simulation-outcome').classList.toggle('stale', Boolean(isStale));
  if (isStale) say('simulation-state', 'Below is the result of the last run. Run again for the new input.', true);
  else if (state.run) say('simulation-state', '');
}

function showRunning(isRunning) {
  $('stop').disabled = !isRunning;
  $('progress').hidden = !isRunning;
  $('run').textContent = isRunning ? 'Run again' : 'Run';
  if (!isRunning) $('progress-text').textContent = '';
}

async function run() {
  const asked = runAsked();
  say('simulation-state', 'Running.');
  showRunning(true);
  $('progress').value = 0;
  const isOver = await running.start(async (signal) => {
    let hasEnded = false;
    for await (const line of lines('api/simulation/run', asked, signal)) {
      hasEnded = !('progress' in line);
      if (hasEnded) showEnd(line, asked);
      else showProgress(line.progress);
    }
    if (!hasEnded) throw new ServerError('The server ended during the run.');
    return true;
  });
  // Another run has replaced this one, or the server is gone.
  if (isOver || !$('offline').hidden) showRunning(false);
}

function showProgress(share) {
  if (share === null) {
    $('progress').removeAttribute('value');
    $('progress-text').textContent = 'waits for other runs';
    return;
  }
  $('progress').value = share;
  $('progress-text').textContent = `${Math.floor(share * 100)} %`;
}

function showEnd(line, asked) {
  $('offline').hidden = true;
  if (line.result) {
    state.run = JSON.stringify(asked);
    const { length } = line.result.policies;
    say('simulation-state', length === 1 ? 'Done.' : `Done: ${length} policies compared.`);
    $('simulation-outcome').classList.remove('stale');
    showRun(line);
    return;
  }
  const findings = (line.problems ?? []).filter((it) => it.finding && it.file === asked.simulation.name);
  if (findings.length) {
    showSimulationFindings(findings.map((it) => it.finding));
    $('simulation-details').open = true;
  }
  const texts = (line.problems ?? []).map(({ file, text, finding }) => {
    if (finding) return `${file}:${finding.line}:${finding.column}: ${finding.text}`;
    return file && !text.startsWith(file) ? `${file}: ${text}` : text;
  });
  const isStale = state.run !== null;
  $('simulation-outcome').classList.toggle('stale', isStale);
  say('simulation-state', [...(isStale ? ['Below is the last valid result.'] : []), ...texts, line.error ?? ''].join(' ').trim(), true);
}

function showRun(answer) {
  const { policies, name } = answer.result;
  const recovered = (policy) => {
    if (!policy.was_disturbed) return '–';
    if (policy.recovered_after_seconds === null) return 'not within the run';
    return policy.recovered_after_seconds < 1 ? 'at once' : `after ${seconds(policy.recovered_after_seconds)}`;
  };
  const tone = (policy) => {
    if (!policy.was_disturbed) return undefined;
    return policy.recovered_after_seconds === null ? 'bad' : 'good';
  };
  const columns = [
    { title: 'Recovered', text: recovered, tone },
    { title: 'Goodput at the end', text: (it) => rate(it.goodput_per_second), bar: (it) => it.goodput_per_second },
    { title: 'Offered at the end', text: (it) => rate(it.offered_per_second), bar: (it) => it.offered_per_second },
    { title: 'Requests per call', text: (it) => times(it.amplification), bar: (it) => it.amplification },
    { title: 'p50', text: (it) => seconds(it.latency.p50_ms / 1000) },
    { title: 'p99', text: (it) => seconds(it.latency.p99_ms / 1000) },
  ];
  const file = answer.file
    ? [['Simulation file', () => save(answer.file.name, answer.file.text, 'text/plain')]]
    : [];
  $('simulation-outcome').replaceChildren(
    table('Comparison of the policies', policies, columns, (policy) => [
      element('span', { class: 'name' }, policy.name), element('span', { class: 'verdict' }, policy.verdict),
    ]),
    pictures(answer),
    exports(name, answer, ...file),
    command(answer.command, 'Simulate'),
  );
  $('simulation-outcome').hidden = false;
}

// --- Tabs, theme and keys ---

/** Arrow keys, Home and End move between tabs. */
function arrows(tabs, choose) {
  tabs.addEventListener('keydown', (event) => {
    const all = [...tabs.querySelectorAll('[role=tab]')];
    const at = all.indexOf(document.activeElement);
    const last = all.length - 1;
    const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    choose(next);
    tabs.querySelectorAll('[role=tab]')[next].focus();
  });
}

const RESULTS = ['plan', 'simulate'];

function showResult(index) {
  RESULTS.forEach((name, other) => {
    const isShown = other === index;
    $(`tab-${name}`).setAttribute('aria-selected', String(isShown));
    $(`tab-${name}`).tabIndex = isShown ? 0 : -1;
    $(`panel-${name}`).hidden = !isShown;
  });
}

function listen() {
  arrows($('policy-tabs'), select);
  arrows(document.querySelector('.tabs.main'), showResult);
  RESULTS.forEach((name, index) => $(`tab-${name}`).addEventListener('click', () => showResult(index)));
  $('policy-name').addEventListener('input', () => {
    state.policies[state.current].name = $('policy-name').value;
    showPolicies();
    changed();
  });
  $('policy-save').addEventListener('click', () => {
    const { name, text } = state.policies[state.current];
    save(name, text, 'text/plain');
  });
  $('policy-remove').addEventListener('click', () => {
    remove(state.current);
    $('policy-name').focus();
  });
  $('policy-add').addEventListener('click', () => {
    const { name, text } = state.catalog.examples[$('example').value];
    add(name, text);
    editor.area.focus();
  });
  $('policy-open').addEventListener('click', () => $('policy-file').click());
  $('policy-file').addEventListener('change', async () => {
    const [file] = $('policy-file').files;
    if (file && file.size <= state.catalog.body_bytes_max) add(file.name, await file.text());
    else if (file) $('policy-name-problem').textContent = `${file.name} is larger than the page can send`;
    $('policy-file').value = '';
  });
  $('method').addEventListener('input', () => {
    $('method').dataset.edited = 'true';
    changed();
  });
  for (const box of document.querySelectorAll('[name=for]')) box.addEventListener('change', changed);
  $('failure-rate').addEventListener('input', () => {
    $('failure-slider').value = $('failure-rate').value || 0;
    refresh();
  });
  $('failure-slider').addEventListener('input', () => {
    $('failure-rate').value = $('failure-slider').value;
    refresh();
  });
  for (const id of ['latency', 'plan-seed']) $(id).addEventListener('input', refresh);
  $('scenario').addEventListener('change', chooseScenario);
  $('simulation-seed').addEventListener('input', markRun);
  for (const choice of document.querySelectorAll('[name=compare]')) choice.addEventListener('change', markRun);
  $('run').addEventListener('click', run);
  $('stop').addEventListener('click', () => {
    running.abort();
    showRunning(false);
    say('simulation-state', 'Stopped.');
    $('run').focus();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !$('panel-simulate').hidden) {
      event.preventDefault();
      run();
    }
  });
  for (const choice of document.querySelectorAll('[name=theme]')) {
    choice.addEventListener('change', () => {
      if (choice.value === 'auto') delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = choice.value;
    });
  }
}

async function start() {
  state.catalog = await answered(newest(), 'api/catalog', () => undefined);
  if (!state.catalog) return;
  $('version').textContent = state.catalog.version;
  const { examples, scenarios } = state.catalog;
  $('example').replaceChildren(...examples.map(({ title }, value) => element('option', { value }, title)));
  $('scenario').replaceChildren(...scenarios.map(({ name }) => element('option', { value: name }, name)));
  listen();
  chooseScenario();
  add(examples[0].name, examples[0].text);
}

start();
