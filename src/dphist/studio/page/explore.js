// Explore: a release with its table. Questions cost nothing.
import { download, latest, post } from './api.js';
import { cells, histogram, most, multiples, spanned, spark } from './charts.js';
import { $, $$, above, attributes, button, ceil, choice, count, day, digits, eps, floor, h, head, item, link, max, note, once, panel, percent, rough, say, scroll, table, tell, toast, typing, words } from './dom.js';
import { attempt, designed, editing, go, redraw, S } from './state.js';
import { pickRelease, releases } from './start.js';

let it = null, loading = '', group = null, range = [0, 0], second = [0, 0], joint = true, other = null, answer = null, more = 200, seek = '', printed = false;
// In the folder and as a download; a reader gets the download alone.
export const makeReport = once(paths => attempt(async () => { let [path] = paths; if (editing()) { ({ path } = await post('report', { paths })); toast('Saved as ' + path); } await download('release/export', { path, format: 'html' }, 'report.html'); }));
const opening = latest(), load = (path, which = null) => attempt(async () => {
  it = await post('release/open', { path, group: which }, opening());
  group = which;
  const n = it.axes[0].n;
  second = [0, (it.axes[1]?.n ?? 1) - 1];
  range = [floor(n * 0.3), max(floor(n * 0.3), floor(n * 0.5) - 1)];
  other = answer = null;
  more = 200;
  if (!isJoint()) joint = false;
  redraw();
  await query();
});
const asking = latest(), query = () => attempt(async () => {
  const [a, b] = range, [c, d] = second;
  answer = { ...await post('release/query', { path: it.path, group, ranges: [isGrid() ? [a, b + 1, c, d + 1] : [a, b + 1]], quantiles: isGrid() || it.axes[0].kind === 'categories' ? [] : [0.25, 0.5, 0.75], joint, compare: other?.path || null }, asking()), of: [[a, b], [c, d]] };
  reads();
});
// The intervals that are shown, and whether those that hold all at once are known.
const ends = () => joint ? it.joint : it.each, isJoint = () => it.joint?.low?.some(v => v !== null);
const isGrid = () => it.kind === 'grid';
// The lowest groups, and how one of them is opened.
const lowest = () => it.groups?.levels.at(-1), pick = i => load(it.path, [lowest().name, ...[lowest().labels[i]].flat()]);
const named = (i, axis = it.axes[0]) => axis.names?.[i] ?? String(i + 1);
const span = r => r.low === null || r.low === undefined ? 'not known' : `${count(floor(r.low))} to ${count(ceil(r.high))}`;
const reads = () => {
  const box = $('#xread'), r = answer?.ranges?.[0], c = other && answer?.compare?.change?.[0];
  if (!box || !r) return;
  const where = it.axes.map((axis, k) => spanned(axis, ...answer.of[k])).join(', ');
  box.replaceChildren(item(where, count(r.value)), item('95 % interval, ' + (answer.joint ? 'all ranges at once' : it.most ? 'most ranges' : 'this range alone'), span(r)), it.total?.value > 0 && item('of all records', percent(r.value / it.total.value)), ...answer.quantiles.map((q, i) => item(['A quarter is', 'Half is', 'Three quarters are'][i] + ' below', q.spelled?.[0] || (q.value === null ? 'not known' : String(digits(q.value, 3)).replace('-', '−')))), ...(c ? [item('Change since ' + (other.title || other.path), (c.value > 0 ? '+' : '') + count(c.value) + (c.low === null ? '' : ' ± ' + rough((c.high - c.low) / 2)))] : []),
    h('div.hint.full', answer.joint ? words('joint') : words('alone'), answer.note && h('details', h('summary', 'How this interval is made'), answer.note)));
  say(`${where}: ${count(r.value)}, interval ${span(r)}`);
};
const rows = () => {
  const e = ends(), [a, b] = range, [c, d] = second, y = it.axes[1];
  return table('', it.values.slice(0, more).map((v, i) => { const x = y ? floor(i / y.n) : i; return h('tr' + (x >= a && x <= b && (!y || (i % y.n >= c && i % y.n <= d)) ? '.sel' : ''), h('td', named(x)), y && h('td', named(i % y.n, y)), h('td.n', count(v)), h('td.n.mute', e ? span({ low: e.low[i], high: e.high[i] }) : 'not known'), other && h('td.n', count(other.values[i])), h('td.n.mute.hide-s', it.presentable ? count(it.presentable[i]) : '')); }),
    [it.axes[0].name, ...(y ? [y.name] : []), '>Records', '>95 % interval', ...(other ? ['>' + (other.title || 'Other')] : []), '>~Presentable']);
};
const shown = () => { const row = $('#tab tr.sel'); if (row) $('#tab').scrollTop = row.offsetTop - 70; };
const groups = () => {
  const level = lowest(), all = level.labels.map((label, i) => [label, i]).filter(([label]) => String(label).toLowerCase().includes(seek.toLowerCase()));
  if (level.labels.length <= 60) return panel('Groups', h('div.chart', { id: 'gc' }));
  return panel('Groups', h('input.f.w20', { k: 'seek', aria: 'Search the groups', placeholder: 'Search', value: seek, oninput: typing(v => { seek = v; redraw(); }) }), h('ul.list', all.slice(0, 100).map(([label, i]) => h('li', h('button', { onclick: () => pick(i), k: 'g' + i }, h('span', String(label)), level.lines?.[i] && spark(level.lines[i]), h('span.mute', count(level.totals?.[i])))))), all.length > 100 && h('p.hint', `${count(all.length - 100)} more: search.`));
};
// The picture of the release as it is printed, drawn by Vega with its interpreter: no text is ever evaluated.
const picture = async box => {
  if (!window.vegaEmbed) await import('./vega.js');
  const { spec } = it;
  const wide = spec.layer && { width: box.clientWidth - 8, autosize: { type: 'fit', contains: 'padding' } }, shown = { ...spec, ...wide, title: undefined };
  await window.vegaEmbed(box, shown, { ast: true, renderer: 'svg', actions: false, defaultStyle: false, tooltip: false });
  const svg = $('svg', box);
  for (const name of ['role', 'aria-label', 'aria-roledescription']) for (const one of [svg, ...$$(`[${name}]`, svg)]) one.removeAttribute(name);
  attributes(svg, { role: 'img', aria: spec.description || it.title });
};
const FREE = 'Questions to a release cost nothing.';
export default {
  async enter(path) {
    if (!path && !it) path = (await releases())[0]?.path;
    if (path && it?.path !== path) { it = S.trouble = null; loading = path; redraw(); await load(path); if (loading === path) { loading = ''; if (!it) redraw(); } } else if (it) query();
  },
  view() {
    if (!it) return [head(null, 'What does it say?', FREE, button('Open a release', pickRelease)), loading ? h('p.hint', 'Opening the release.') : !S.trouble && note('plain', 'Nothing published yet. ', editing() && designed())];
    const grid = isGrid(), e = ends(), half = e && most(e.high.map((v, i) => v - e.low[i])) / 2, isThin = half * 100 < most(it.values), p = it.publication;
    return [head(above(it.path, h('span', 'published ' + day(it.created)), it.simulated && h('b', 'SIMULATED'), link('Open another release', () => editing() ? pickRelease() : go('folder'))), it.title, `${it.protects} ${FREE}`,
      button(other ? 'Stop comparing' : 'Compare', async () => { if (other) other = null; else { const path = await pickRelease(true); if (path) { const two = await attempt(() => post('release/open', { path })); if (two && two.values.length !== it.values.length) toast(tell('samebins')); else other = two; } } redraw(); query(); }), button('Make the report', () => makeReport([it.path]), 'pri')),
    panel('', h('div.chead', h('h2', 'Records by ' + it.axes.map(a => a.name).join(' and ')), choice('Picture', [[false, 'To ask'], [true, 'As printed']], printed, v => { printed = v; }), isJoint() && choice('Interval', [[true, 'All at once'], [false, 'Each alone']], joint, v => { joint = v; query(); })),
      h('div.legend', h('span', h('i.k-est'), grid && !printed ? `Estimate, at most ${count(most(it.values))}` : 'Estimate'), it.each && h('span', h('i.k-band'), `95 % interval for ${joint ? 'all bins at once' : it.most ? 'most bins' : 'each bin on its own'}${grid || isThin ? `: at most ± ${rough(half)}` : ''}`), other && h('span', h('i.k-other'), (other.title || other.path) + ' (dashed)')), h(printed ? 'div.vega' : 'div.chart', { id: 'xc' }),
      h('div.read', { id: 'xread' })),
    it.groups && h('div.mt', groups()),
    h('div.cols.side', panel('', h('div.chead', h('h2', 'Table'), h('span.hint', count(it.values.length) + ' bins')), scroll('Table of the release', { id: 'tab' }, rows()), it.values.length > more && link('Show more rows', () => { more += 800; redraw(); })),
      h('aside.stack', panel('', words('tables', { formats: ['xlsx', 'csv', 'json', 'png', 'svg'].map(f => button(f.toUpperCase(), () => attempt(() => download('release/export', { path: it.path, format: f, group, joint }, 'release.' + f)), 'tiny')) })),
        it.negatives > 0 && panel('', words('negatives')),
        it.bounding && panel('What is counted', h('p.small', it.bounding)), panel('About this release', table('.small', it.about.map(([a, b]) => h('tr', h('td.mute', a), h('td', b, a === 'epsilon' && p && ' of the plan’s ' + eps(p.epsilon)))))), panel('What to keep in mind', it.limits[joint ? 'joint' : 'each'].map(([a, b]) => h('p.small', h('b', a + ': '), b)))))];
  },
  drawn() {
    if (!it) return;
    const box = $('#xc'), e = ends();
    if (printed) attempt(() => picture(box));
    else if (isGrid()) cells(box, { values: it.values, axes: it.axes, rect: [0, 1].map(k => [range[k], second[k]]), names: cell => it.axes.map((a, k) => `${a.name} ${named(cell[k], a)}`).join(', '), end: ([p, q]) => { range = [p[0], q[0]]; second = [p[1], q[1]]; redraw(); query(); } });
    else histogram(box, { values: it.values, band: e && e.low.every(v => v !== null) ? [e.low, e.high] : null, other: other?.values, axis: it.axes[0], range, names: named, height: 340, label: `Estimated records by ${it.axes[0].name} with a 95 % band`, move: r => { range = r; }, end: () => { const top = $('#tab'); top.replaceChildren(rows()); shown(); query(); } });
    shown();
    const level = lowest();
    if ($('#gc')) multiples($('#gc'), { draws: level.lines, names: i => String(level.labels[i]), pick, chosen: level.labels.findIndex(l => String(l) === String(it.groups.chosen?.slice(1))) });
    reads();
  },
};
