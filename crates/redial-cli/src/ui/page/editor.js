// A text area with line numbers, whose problems are underlined.

const SEVERITIES = ['error', 'warning', 'note'];
/** So many problems are underlined; the list below the editor has all of them. */
const UNDERLINED_MAX = 500;

/** An element with its attributes and children. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, '');
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** The index of a line and column, which count from 1, and columns count characters. */
function indexOf(lines, starts, line, column) {
  const row = Math.min(line, lines.length) - 1;
  let index = starts[row];
  let left = column - 1;
  for (const character of lines[row]) {
    if (left-- <= 0) break;
    index += character.length;
  }
  return index;
}

/** The ranges of findings in a text, at least one character long where there is one. */
function rangesOf(text, findings) {
  if (!findings.length) return [];
  const lines = text.split('\n');
  const starts = [];
  let start = 0;
  for (const line of lines) {
    starts.push(start);
    start += line.length + 1;
  }
  return findings.slice(0, UNDERLINED_MAX).map((finding) => {
    let from = indexOf(lines, starts, finding.line, finding.column);
    let to = indexOf(lines, starts, finding.end_line, finding.end_column);
    if (to <= from) {
      const hasNext = from < text.length && text[from] !== '\n';
      if (hasNext || from === 0) to = Math.min(from + 1, text.length);
      else [from, to] = [from - 1, from];
    }
    return { from, to, severity: SEVERITIES.indexOf(finding.severity), finding };
  });
}

/** The text cut at the ends of ranges; each piece with the worst severity that covers it. */
function pieces(text, ranges) {
  const cuts = [...new Set([0, text.length, ...ranges.flatMap(({ from, to }) => [from, to])])];
  cuts.sort((a, b) => a - b);
  return cuts.slice(1).map((to, index) => {
    const from = cuts[index];
    const over = ranges.filter((range) => range.from <= from && to <= range.to);
    const severity = Math.min(...over.map((range) => range.severity));
    return { text: text.slice(from, to), name: SEVERITIES[severity] };
  });
}

export class Editor {
  constructor(root, label, describedBy, onInput) {
    this.gutter = element('div', { class: 'gutter', 'aria-hidden': 'true' });
    this.marks = element('pre', { class: 'marks', 'aria-hidden': 'true' });
    this.area = element('textarea', {
      'aria-label': label, 'aria-describedby': describedBy, spellcheck: 'false', autocapitalize: 'off',
      autocomplete: 'off', wrap: 'off', rows: '12',
    });
    this.findings = [];
    root.replaceChildren(this.gutter, element('div', { class: 'code' }, this.marks, this.area));
    this.area.addEventListener('input', () => {
      // The old problems are at old positions.
      this.show([]);
      onInput(this.area.value);
    });
    this.area.addEventListener('scroll', () => this.scroll());
  }

  get text() {
    return this.area.value;
  }

  set text(text) {
    if (this.area.value !== text) this.area.value = text;
    this.show([]);
  }

  /** Underlines these problems. */
  show(findings) {
    this.findings = findings;
    const text = this.area.value;
    this.ranges = rangesOf(text, findings);
    const marks = pieces(text, this.ranges).map((piece) => (
      piece.name ? element('mark', { class: piece.name }, piece.text) : piece.text));
    // A line at the end, so that the last line of the text is never cut off. Without a problem there is
    // nothing to underline, and a long text is not laid out twice.
    this.marks.replaceChildren(...(this.ranges.length ? [...marks, '\n'] : []));
    const count = text.split('\n').length;
    this.area.rows = Math.min(Math.max(count, 8), 24);
    this.number(count);
    this.area.setAttribute('aria-invalid', String(findings.some((it) => it.severity === 'error')));
    this.scroll();
  }

  /** Numbers the lines; those with a problem in its colour. */
  number(count) {
    const worst = new Map();
    for (const { severity, finding } of this.ranges) {
      worst.set(finding.line, Math.min(severity, worst.get(finding.line) ?? severity));
    }
    const shown = JSON.stringify([count, ...worst]);
    if (this.numbered === shown) return;
    this.numbered = shown;
    const numbers = [];
    let plain = '';
    for (let line = 1; line <= count; line += 1) {
      if (worst.has(line)) {
        numbers.push(plain, element('span', { class: SEVERITIES[worst.get(line)] }, String(line)));
        plain = '\n';
      } else {
        plain += `${line}\n`;
      }
    }
    this.gutter.replaceChildren(...numbers, plain);
  }

  /** Selects a problem. */
  select(finding) {
    const range = this.ranges.find((it) => it.finding === finding);
    this.area.focus();
    if (!range) return;
    this.area.setSelectionRange(range.from, range.to);
    const height = this.area.scrollHeight / Math.max(this.area.value.split('\n').length, 1);
    this.area.scrollTop = Math.max(0, (finding.line - 4) * height);
  }

  scroll() {
    this.marks.scrollTop = this.area.scrollTop;
    this.marks.scrollLeft = this.area.scrollLeft;
    this.gutter.scrollTop = this.area.scrollTop;
  }
}

/** What to say about a number of problems. */
export function summary(findings) {
  const counts = SEVERITIES.map((name) => {
    const count = findings.filter((finding) => finding.severity === name).length;
    return count && `${count} ${name}${count === 1 ? '' : 's'}`;
  }).filter(Boolean);
  return counts.length ? counts.join(', ') : 'No problem found';
}

/** The list of problems below an editor; a click selects the place. */
export function list(findings, select) {
  return findings.map((finding) => {
    const place = element('button', { type: 'button', class: 'place' }, `${finding.line}:${finding.column}`);
    place.setAttribute('aria-label', `Go to line ${finding.line}, column ${finding.column}`);
    place.addEventListener('click', () => select(finding));
    const text = element('span', {}, finding.text);
    const help = finding.help ? [element('span', { class: 'help' }, finding.help)] : [];
    const rule = element('span', { class: 'rule' }, `${finding.severity} · ${finding.rule}`);
    return element('li', { class: finding.severity }, place, element('div', {}, rule, text, ...help));
  });
}
