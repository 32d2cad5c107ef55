// Design: sentences with holes that make the plan file.
import { post } from './api.js';
import { ARROWS, drag, ruler } from './charts.js';
import { above, ask, assign, button, ceil, choice, closer, copy, count, dialog, entries, eps, floor, h, head, keysOf, link, max, min, number, round, select, slider, tell, typing, valued, words } from './dom.js';
import { attempt, change, faults, go, histogramNames, redraw, S, save } from './state.js';
import { pickData, pickPlan } from './start.js';
import { charge } from './publish.js';

export const swatch = name => h('span.swatch.ink' + max(0, histogramNames().indexOf(name)) % 6);
export const crumb = () => above(S.path, h('span', !S.base ? 'Not saved yet' : S.dirty ? 'Changed, not saved' : 'Saved'),
  S.dirty && link('Save', () => save()), link('Open a plan', pickPlan), link('Save as', async () => { const path = await ask('Save the plan as', S.path, 'Save'); if (path) save(path.replace(/(\.toml)?$/, '.toml')); }));

let open, tab = 'words', more = false;
const typed = text => { const t = text.trim(); return t === '' ? null : isFinite(t) ? Number(t) : t; };
const filled = text => text.trim() || null;
const chips = (all, show, n = all.length) => h('div.chips', all.slice(0, 24).map(one => h('span.chip', show(one))), n > 24 && h('span.chip', count(n - 24) + ' more'));
const wrong = path => faults().filter(one => one.path === path || one.path?.startsWith(path + '.'));
const why = list => list.map(q => h('p.why', { role: 'alert' }, q.message, ' ', q.suggestion));
const hole = (k, value, aria, set, size = 'w6', bad) => h(`input.f.${size}${bad ? '.wrong' : ''}`, { value, k, aria, 'aria-invalid': bad ? 'true' : '', oninput: typing(v => change(() => set(v))) });
const pick = (k, options, value, aria, set, cls = '.f') => select(cls, k, aria, options, value || '', v => change(() => set(v), 0));
const column = (k, value, aria, set, none) => pick(k, [...(none ? [['', none]] : []), ...new Set([...S.columns.map(c => c.name), value || S.columns[0]?.name || ''])].map(v => [v].flat()), value, aria, set);
const labels = (k, value, aria, set) => h('textarea.f', { rows: min(7, max(2, [value].flat().length)), k, aria, value: [value ?? []].flat().join('\n'), oninput: typing(v => change(() => { const lines = v.split('\n').filter(t => t.trim()); set(lines.length === 1 && /\.(txt|csv)$/i.test(lines[0]) ? lines[0] : lines); })) });

// The kinds of bins: the words of the plan file, and the holes of the sentence.
const KINDS = { whole: 'Whole numbers', equal: 'Equal widths', log: 'Log scale', time: 'Time', labels: 'Labels', edges: 'Own edges' };
const kindOf = (one, p) => one[p + 'integers'] ? 'whole' : one[p + 'log'] ? 'log' : one[p + 'every'] ? 'time' : one[p + 'categories'] ? 'labels' : Array.isArray(one[p + 'bins']) ? 'edges' : 'equal';
const setKind = (one, p, kind) => {
  const was = [one[p + 'integers'], one[p + 'log'], one[p + 'range'], one[p + 'bins']].find(Array.isArray) || [], ends = [was[0], was.at(-1)].map(v => typeof v === 'number' ? v : null), bins = one[p + 'bins'] > 0 ? one[p + 'bins'] : 24;
  for (const key of ['integers', 'log', 'every', 'categories', 'other', 'null', 'bins', 'range']) delete one[p + key];
  const made = { whole: { integers: ends }, equal: { bins, range: ends }, log: { log: ends, bins }, time: { range: [null, null], every: 'week' }, labels: { categories: [] }, edges: { bins: ends } }[kind];
  for (const key in made) one[p + key] = made[key];
};
const guess = name => { const type = String(S.columns.find(c => c.name === name)?.type); return /INT/i.test(type) ? 'whole' : /DATE|TIME/i.test(type) ? 'time' : /CHAR|TEXT|ENUM|BOOL/i.test(type) ? 'labels' : 'equal'; };
const fields = (name, one, p) => {
  const kind = kindOf(one, p), k = key => name + '.' + p + key, bad = key => wrong('histograms.' + k(key)).length;
  const ends = (key, a, b, size) => [a, b].map((aria, i) => [i ? ' to ' : ' from ', hole(k(key) + i, one[p + key]?.[i], aria, v => { one[p + key][i] = kind === 'time' ? filled(v) : typed(v); }, size, bad(key))]);
  const bins = [' in ', hole(k('bins'), one[p + 'bins'], 'Number of bins', v => { one[p + 'bins'] = typed(v); }, 'w4', bad('bins')), ' bins'];
  return {
    whole: () => ends('integers', 'Smallest value', 'Largest value'), equal: () => [ends('range', 'Lower bound', 'Upper bound'), bins], log: () => [ends('log', 'Lower bound', 'Upper bound'), bins],
    time: () => [' by ', pick(k('every'), ['hour', 'day', 'week', 'month', 'quarter', 'year'].map(w => [w]), one[p + 'every'], 'Length of a bin', v => { one[p + 'every'] = v; }), ends('range', 'First day', 'Day after the last', 'w11'), ' (not included) in ', hole(k('tz'), one.timezone ?? 'UTC', 'Time zone', v => { one.timezone = filled(v); }, 'w11', bad('timezone'))],
    edges: () => [' with edges ', hole(k('bins'), one[p + 'bins'].filter(v => v !== null).join(', '), 'Edges, with commas between', v => { one[p + 'bins'] = v.split(/[,;\s]+/).filter(Boolean).map(typed); }, 'w30', bad('bins'))],
    labels: () => words('withlabels', { of: labels(k('categories'), one[p + 'categories'], 'Labels, ' + tell('onelines'), v => { one[p + 'categories'] = v; }), rest: hole(k('other'), one[p + 'other'], tell('otherbin'), v => { one[p + 'other'] = filled(v); }, 'w8') }),
  }[kind]();
};
const axis = (name, one, p) => {
  const drawn = S.check?.histograms?.[name]?.axes?.[p ? 1 : 0], key = { whole: 'integers', equal: 'range', log: 'log' }[kindOf(one, p)];
  return [choice('Kind of bins of ' + (one[p + 'column'] || name), entries(KINDS), kindOf(one, p), kind => change(() => setKind(one, p, kind), 0)),
    h('p.say', p ? 'and by ' : 'Count records by ', column(`${name}.${p}column`, one[p + 'column'], 'Column', v => { one[p + 'column'] = v; }), fields(name, one, p)), key && h('p.hint', link('I do not know the range', () => look(name, one, p, key))),
    drawn && (drawn.kind === 'categories' ? chips(drawn.names, t => t, drawn.n) : ruler(drawn))];
};
const drop = (one, test) => change(() => { for (const key of keysOf(one)) if (test(key)) delete one[key]; }, 0);
const card = name => {
  const one = S.plan.histograms[name], isOpen = open === name, info = S.check?.histograms?.[name], last = S.good?.histograms[name], bad = wrong('histograms.' + name), other = S.columns.find(c => c.name !== one.column)?.name || '';
  return h('div.hcard' + (isOpen ? '.open' : ''),
    h('button.hrow', { k: 'open' + name, 'aria-expanded': String(isOpen), onclick: () => { open = isOpen ? null : name; redraw(); } }, swatch(name), h('span.grow', h('b', name), h('br'), h('span.hint' + (bad.length ? '.c-bad' : ''), bad.length || !info ? 'not complete yet' : `${count(info.bins)} bins of ${one.column}${one.y_column ? ' and ' + one.y_column : ''}${one.by ? ', one histogram per ' + one.by : ''}`)), last && h('span.hint.nowrap', `${+(100 * number(last.share)).toFixed(1)} %  ε ${eps(last.epsilon)}`)),
    isOpen && h('div.hbody', axis(name, one, ''),
      'y_column' in one && h('div.rule', axis(name, one, 'y_'), link('Remove the second column', () => drop(one, key => key.startsWith('y_')))),
      one.by !== undefined && h('div.rule', words('eachgroup', { by: column(name + '.by', String(one.by), 'Column of the groups', v => { one.by = v; }), of: labels(name + '.groups', one.groups, 'Groups, ' + tell('onelines'), v => { one.groups = v; }), rest: hole(name + '.go', one.group_other, tell('othergroup'), v => { one.group_other = filled(v); }, 'w8') }),
        h('p.hint', words('groups'), link('Remove the groups', () => drop(one, key => ['by', 'groups', 'group_other', 'importances'].includes(key))))),
      why(bad),
      h('p.small', tell('outside') + ' are ', pick(name + '.outside', [['drop', 'left out'], ['clip', 'counted in the end bins']], one.outside || 'drop', tell('outside'), v => { one.outside = v; })),
      h('p.hint', words('bounds')),
      h('div.row', !('y_column' in one) && one.by === undefined && [link('Add a second column (grid)', () => change(() => { one.y_column = other; delete one.workload; setKind(one, 'y_', guess(other)); }, 0)), link('One histogram per group', () => change(() => assign(one, { by: other, groups: [] }), 0))],
        link('Rename', async () => { const next = await ask('Rename ' + name, name, 'Rename'); if (next && !(next in S.plan.histograms)) { open = next; change(plan => { plan.histograms = Object.fromEntries(entries(plan.histograms).map(([key, v]) => [key === name ? next : key, v])); }, 0); } }),
        histogramNames().length > 1 && link('Remove ' + name, () => change(plan => { delete plan.histograms[name]; even(plan); }, 0))),
      advanced(name, one, info)));
};
const advanced = (name, one, info) => {
  const field = (label, help, control) => h('label.fld', label, control, h('small', help)), methods = S.session.methods, about = methods.find(m => m.name === (one.method || info?.method));
  const list = (key, names, value) => pick(`${name}.${key}`, names.map(v => [v]), value, '', v => { one[key] = v; }, '');
  return h('details.adv', { open: more, ontoggle: e => { more = e.target.open; } }, h('summary', { k: name + '.adv' }, 'Advanced: method ', h('b', one.method || 'auto'), ', workload ', h('b', one.workload || 'points'), info && [', intervals ', h('b', info.intervals)], '.'),
    h('div.grid3', field('Workload', words('workload'), list('workload', S.session.workloads, one.workload || 'points')),
      field('Method', about?.summary || words('anymethod'), list('method', [...new Set(['auto', ...methods.map(m => m.name)])], one.method || 'auto')),
      field('Records per person', words('perperson'), h('input', { value: one.max_contributions ?? 1, k: name + '.mc', oninput: typing(v => change(() => { one.max_contributions = typed(v); })) }))));
};
// A paid look at the magnitudes of a column; what it found is told again at no cost.
const PAID = 'A small paid look', told = (text, more) => dialog(PAID, close => [h('p.small', text), closer('Close', close, more && button(more, () => close(true), 'pri'))]);
const look = (name, one, p, key) => attempt(async () => {
  const about = { plan: S.plan, path: S.path, histogram: name, axis: p, epsilon: await ask(PAID, '0.05', 'Go on', words('look')) }, prepare = () => post('bounds/prepare', about);
  if (!about.epsilon) return;
  let now = await prepare();
  if (now.state === 'finishable') { await post('publish/finish', now); now = await prepare(); }
  if (now.state === 'lost') { if (!await told(now.words, 'Look again as a new charge')) return; about.again = true; now = await prepare(); }
  if (now.state === 'new' && now.allowed) { now = await charge(now, 'Look', 'bounds', about); redraw(); } else if (!now.found) await told(now.reason || now.words);
  const found = now?.found, [a, b] = found?.range || [];
  if (found && await told(found.words, found.range && 'Use this range')) change(() => { one[p + key] = key === 'integers' ? [floor(a), ceil(b)] : [key === 'log' && a <= 0 ? null : a, b]; }, 0);
});

const even = plan => { for (const one of Object.values(plan.histograms)) delete one.share; };
const shares = () => {
  const names = histogramNames(), parts = names.map(n => round(100 * number(S.good?.histograms[n]?.share ?? 0)));
  if (names.length < 2 || parts.some(p => !p)) return null;
  const bar = h('div.sharebar', { role: 'group', aria: 'Shares of epsilon' }), rest = parts.slice(0, -1).reduce((a, b) => a + b, 0);
  parts[parts.length - 1] = 100 - rest;
  const move = (i, d) => { const by = max(1 - parts[i], min(parts[i + 1] - 1, d)); parts[i] += by; parts[i + 1] -= by; paint(); change(plan => names.forEach((n, j) => { plan.histograms[n].share = String(parts[j] / 100); })); };
  const cells = names.map((n, i) => {
    const cell = h(`div.ink${i % 6}${open === n ? '.on' : ''}`, h('span'));
    if (i === names.length - 1) return cell;
    const grip = slider(h('span.grip', { k: 'share' + i }), `Boundary between ${n} and ${names[i + 1]}`, [1, 99], ARROWS, d => move(i, d));
    let from;
    drag(grip, (e, start) => { if (e === start) from = parts[i]; move(i, from + round(100 * (e.clientX - start.clientX) / bar.clientWidth) - parts[i]); });
    cell.append(grip);
    return cell;
  });
  const paint = () => cells.forEach((cell, i) => { cell.style.flex = parts[i]; cell.firstChild.textContent = `${names[i]} ${parts[i]} %`; if (cell.children[1]) valued(cell.children[1], parts[i], `${names[i]} ${parts[i]} percent`); });
  bar.append(...cells);
  paint();
  return [bar, h('p.hint', words('shares', { e: S.plan.epsilon }), link('Divide equally', () => change(even, 0)), ' · ', link('Divide for equal relative error', () => attempt(async () => { const { shares } = await post('plan/shares', { plan: S.plan, path: S.path, records: S.guess.records }), fit = keysOf(shares).join() === histogramNames().join(); if (fit) change(plan => { for (const name in shares) plan.histograms[name].share = shares[name]; }, 0); })))];
};
const aside = () => {
  const it = S.good, code = it && { toml: it.toml, cli: it.shell, py: it.python }[tab];
  return h('aside.panel.pad.sticky', { aria: 'The plan' }, choice('The plan as', [['words', 'In words'], ['toml', 'Plan file'], ['cli', 'Shell'], ['py', 'Python']], tab, next => { tab = next; }),
    h('div.words', faults().length > 0 && h('p.why', words(it ? 'last' : 'incomplete')),
      it && [code ? h('pre', { tabindex: 0 }, code) : [it.words.map(t => h('p', t)), words('methods')], h('div.row', button('Copy', () => copy(code || it.words.join('\n\n'))), words('exact'))]));
};
const add = names => {
  const free = S.columns.find(c => c.name !== S.plan.unit && !names.some(n => S.plan.histograms[n].column === c.name)) || S.columns[0] || { name: 'column' };
  let name = free.name.replace(/[^\w .-]/g, '_');
  while (name in S.plan.histograms) name += '2';
  const one = { column: free.name }, k = S.plan.histograms[names[0]]?.max_contributions;
  setKind(one, '', guess(free.name));
  if (k) one.max_contributions = k;
  open = name;
  change(plan => { even(plan); plan.histograms[name] = one; }, 0);
};

export default {
  view() {
    const { plan } = S, all = Object.values(plan.histograms), names = histogramNames(), k = all[0]?.max_contributions ?? 1, whom = (plan.unit && S.good?.whom) || 'person', block = (title, ...children) => h('section.block', h('h2', title), h('div', ...children));
    if (open === undefined || (open && !names.includes(open))) open = names[0];
    return [head(crumb(), 'What do you want to count?', words('lede-design'), button('Foresee the error →', () => go('foresee'), 'pri', { disabled: !S.good })),
      h('div.cols.plan', h('div',
        block('Data', h('div.row', h('b.mono', plan.data), plan.table && h('span.hint', 'table ' + plan.table), S.columns.length > 0 && h('span.hint', S.columns.length + ' columns'), link('Choose another file or table', pickData)), chips(S.columns, c => [h('span.mono', c.name), h('em', c.type ? c.type.toLowerCase() : 'not declared')])),
        block('Who is protected', h('p.say', words(plan.unit ? 'protect' : 'protect1', { whom }), h('span.nowrap', column('unit', plan.unit, 'Column that names the ' + whom, v => { plan.unit = v || null; if (!v) for (const one of all) delete one.max_contributions; }, 'no column'), '.'), ' ', plan.unit && h('span.nowrap', 'Count at most ', hole('k', k, 'Largest number of records counted per ' + whom, v => { for (const one of all) one.max_contributions = typed(v); }, 'w2', all.some((_, i) => wrong(`histograms.${names[i]}.max_contributions`).length)), ' records each.')),
          h('p.hint', plan.unit ? words('bounding', { whom, k, two: 2 * k || 2 }) : words('unit'))),
        block('Histograms', names.map(card), button(names.length ? 'Add a histogram' : 'Add the first histogram', () => add(names))),
        block('Shares of epsilon', words('spend', { e: hole('eps', plan.epsilon, 'Epsilon of the whole plan', v => { plan.epsilon = v.trim(); }, 'w4', wrong('epsilon').length), of: hole('dataset', plan.dataset, 'Dataset whose budget is charged', v => { plan.dataset = filled(v); }, 'w11'), in: hole('ledger', plan.ledger, 'File of the ledger', v => { plan.ledger = filled(v); }, 'w11') }),
          why(faults().filter(q => !names.some(n => q.path?.startsWith('histograms.' + n)))), shares())), aside())];
  },
};
