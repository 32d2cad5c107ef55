// Elements, numbers and small pieces. A text enters the page as a text node, never as HTML.
// Short names of what is called everywhere.
export const { abs, ceil, floor, log, max, min, round } = Math, { assign, entries, keys: keysOf } = Object;
export const $ = (selector, root = document) => root.querySelector(selector);
// What happens anywhere on the page; and one thing to do after a while, in whose place comes the next, or nothing.
export const on = (names, work, how) => { for (const name of names.split(' ')) addEventListener(name, work, how); };
export const timer = () => { let id; return (work, wait) => { clearTimeout(id); id = work && setTimeout(work, wait); }; };
// Work that is not begun again while it is under way.
export const once = work => { let busy; return async (...about) => { if (busy) return; busy = true; try { return await work(...about); } finally { busy = false; } }; };
export const times = (n, make) => Array.from({ length: n }, (_, i) => make(i));
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

const isProps = x => x?.constructor === Object, real = x => x || x === 0;
const build = (node, [first, ...rest]) => {
  const props = isProps(first) ? first : {};
  for (const [name, value] of entries(props)) {
    if (!real(value) && !(name === 'value' && value === '')) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'css') for (const key in value) node.style.setProperty(key, value[key]);
    else if (name === 'value' && node.tagName !== 'OPTION') node.given = node.value = value;
    else node.setAttribute(name === 'aria' ? 'aria-label' : name === 'k' ? 'data-k' : name, value === true ? '' : value);
  }
  node.append(...[isProps(first) ? [] : [first], rest].flat(Infinity).filter(real));
  return node;
};
// h('p.hint', {props}, children): props may be left out; `aria` is the label, `k` names what keeps the focus.
export const h = (what, ...rest) => {
  const [tag, ...classes] = what.split('.'), node = document.createElement(tag);
  if (classes.length) node.className = classes.join(' ');
  if (tag === 'button') node.type = 'button';
  if (tag === 'input') node.autocomplete = 'off';
  node.spellcheck = false;
  return build(node, rest);
};
export const attributes = (node, props) => build(node, [props]);
export const s = (tag, ...rest) => build(document.createElementNS('http://www.w3.org/2000/svg', tag), rest);

export const icon = (name, cls = '') => s('svg', { class: 'ic ' + cls, viewBox: '0 0 24 24', 'aria-hidden': 'true' }, s('use', { href: '#i-' + name }));
// A passage of index.html; what it leaves open is filled with texts and elements.
export const words = (name, values) => {
  const passage = document.importNode($('#words').content.getElementById(name), true);
  for (const slot of $$('slot', passage)) slot.replaceWith(...[values[slot.name]].flat(Infinity).filter(real));
  return [...passage.childNodes];
};
// A passage that is plain text, for labels.
export const tell = name => words(name)[0].data;
export const note = (kind, ...children) => h('div.note.' + kind, { role: kind === 'bad' && 'alert' }, icon(kind), h('div', ...children));
export const link = (text, onclick) => h('button.link', { onclick, k: text }, text);
export const button = (text, onclick, kind = '', more) => h('button.btn' + (kind && '.' + kind), { onclick, k: text, ...more }, text);
// A number that was asked for, below what it is.
export const item = (name, value) => h('div', h('span.k', name), h('span.v', value));
// The end of a dialog: what closes it, and what else there is to press.
export const closer = (text, close, ...more) => h('div.row.end', button(text, () => close(), '', { autofocus: true }), ...more);
export const part = (kind, share) => share > 0 && h('i.' + kind, { css: { width: 100 * share + '%' } });
export const panel = (title, ...children) => h('section.panel.pad', title && h('h2', title), ...children);
// The line above a heading: a file, and what is said of it.
export const above = (file, ...more) => h('p.crumb', h('b.mono', file), ...more);
export const head = (crumb, title, lede, ...actions) => h('div.head', h('div', crumb, h('h1', title), h('p.lede', lede)), actions.length > 0 && h('div.row', ...actions));
export const scroll = (aria, more, ...children) => h('div.scroll', { tabindex: 0, role: 'region', aria, ...more }, ...children);
export const table = (cls, rows, names) => h('table' + cls, names && h('thead', h('tr', names.map(n => h('th' + (n[0] === '>' ? '.n' : '') + (n[1] === '~' ? '.hide-s' : ''), n.replace(/^>~?/, ''))))), h('tbody', rows));

// What is typed or chosen, for what is done with it.
export const typing = set => e => set(e.target.value);
export const select = (cls, k, aria, options, value, set) => h('select' + cls, { k, aria, onchange: typing(set) }, options.map(([v, text = v]) => h('option', { value: v, selected: v === value }, text)));
// What is moved by keys as well: its label, its ends, and by how much each key moves it.
export const slider = (node, label, [low, high], keys, move) => attributes(node, { tabindex: 0, role: 'slider', aria: label, 'aria-valuemin': low, 'aria-valuemax': high, onkeydown: e => { const d = keys[e.key]; if (d) { e.preventDefault(); move(d); } } });
export const valued = (node, now, text) => attributes(node, { 'aria-valuenow': now, 'aria-valuetext': text });
let draw = () => {};
export const whenChanged = callback => { draw = callback; }, redraw = () => draw();
// One of several, as buttons or as tabs; arrows move between tabs. What was chosen is drawn.
export const choice = (label, options, chosen, set, tabs = '', pick = key => { set(key); redraw(); }) => h('div.' + (tabs || 'seg'), { role: tabs ? 'tablist' : 'group', aria: label, onkeydown: event => {
  const d = tabs && { ArrowRight: 1, ArrowLeft: -1 }[event.key], at = options.findIndex(o => o[0] === chosen);
  if (d) { event.preventDefault(); pick(options[(at + d + options.length) % options.length][0]); $('[aria-selected=true]')?.focus(); }
} }, options.map(([key, ...text]) => h('button', { role: tabs && 'tab', [tabs ? 'aria-selected' : 'aria-pressed']: String(key === chosen), tabindex: tabs && key !== chosen && '-1', k: label + key, onclick: () => pick(key) }, text)));

// Replaces the children of a node and draws its charts; focus, caret and what is being typed stay.
export const swap = (node, draw, ...children) => {
  const at = focused(), was = node.contains(at) ? at : null;
  node.replaceChildren(...children.flat(Infinity).filter(real));
  draw?.();
  const now = was?.dataset.k && $$('[data-k]', node).find(one => one.dataset.k === was.dataset.k);
  if (!now) return;
  now.focus({ preventScroll: true });
  if (!now.matches('input:not([type=range]),textarea')) return;
  const { selectionStart: from, selectionEnd: to, value } = was;
  if (value !== was.given) now.value = value;
  now.setSelectionRange(from, !from && to === value.length ? 1e9 : to);
};
export const focused = () => document.activeElement;
export const toast = text => { const box = h('div.toast', { role: 'status' }, text); document.body.append(box); setTimeout(() => box.remove(), 2600); };
const saying = timer();
export const say = text => saying(() => { $('#live').textContent = text; }, 400);
// A dialog; `fill(close)` returns what stands in it. Resolves with what it was closed with.
export const dialog = (title, fill, wide) => new Promise(resolve => {
  let answer = null;
  const box = h('dialog' + (wide ? '.wide' : ''), { 'aria-labelledby': 'dt', onclose: () => { box.remove(); resolve(answer); } });
  box.append(h('form.pad', { onsubmit: e => e.preventDefault() }, h('h2', { id: 'dt' }, title), fill(value => { answer = value ?? null; box.close(); })));
  document.body.append(box);
  box.showModal();
  $('[autofocus]', box)?.focus();
});
export const ask = (title, value, yes, hint) => dialog(title, close => {
  const input = h('input', { value, aria: title, autofocus: true });
  return [hint, input, closer('Cancel', close, h('button.btn.pri', { type: 'submit', onclick: () => close(input.value.trim()) }, yes))];
});
export const copy = text => navigator.clipboard.writeText(text).then(() => toast('Copied'), () => toast(tell('nocopy')));

const known = n => typeof n === 'number' && isFinite(n), minus = text => text.replace('-', '−').replace(/^−0$/, '0');
export const digits = (n, many) => +n.toPrecision(many);
export const count = n => known(n) ? minus(round(n).toLocaleString('en')) : '–';
export const rough = n => !known(n) ? '–' : abs(n) >= 10 ? count(digits(n, abs(n) >= 1000 ? 3 : 2 + (abs(n) >= 100))) : minus(String(digits(n, 2)));
// Exact numbers come as texts ("0.5", "1/3"): `number` is for drawing only.
export const number = text => { const [a, b] = String(text ?? '').split('/').map(Number); return b === undefined ? a : a / b; };
export const eps = text => { const v = number(text), short = digits(v, 6); return abs(v - short) < 1e-12 ? String(short) : '≈\u00a0' + digits(v, 3); };
// Half the width of an interval, and an error, as both are written everywhere.
export const within = n => known(n) ? '±\u00a0' + rough(n) : 'not known', spoken = (epsilon, error) => `epsilon ${epsilon}, typical error ${rough(error)} records`;
export const percent = x => known(x) ? minus((100 * x).toFixed(x > 0.1 ? 0 : 1)) + ' %' : '–';
export const few = (n, one, many = one + 's') => ('no one two three four five six'.split(' ')[n] || count(n)) + ' ' + (n === 1 ? one : many);
export const day = (text, time) => { const at = new Date(text); return isNaN(at) ? String(text ?? '') : at.toLocaleString('en-GB', time ? { dateStyle: 'long', timeStyle: 'short' } : { dateStyle: 'medium' }); };
