// Where to begin, the folder of releases, the ledger; and the dialogs that choose a file.
import { post } from './api.js';
import { spark, spending } from './charts.js';
import { $, $$, above, ask, button, closer, count, day, dialog, digits, eps, few, h, head, link, max, min, note, number, once, panel, part, scroll, table, tell, toast, words } from './dom.js';
import { attempt, go, loadSession, named, openPlan, purse, redraw, S, setData } from './state.js';

const look = (title, kinds, under = '') => attempt(async () => {
  const found = (await post('files', { under })).files, name = path => path.replace(/^.*\//, '');
  const picked = await dialog(title, close => [h('p.hint', 'In ' + (under || S.session.folder)), h('ul.list', under && h('li', h('button', { onclick: () => close({ path: under.replace(/\/?[^/]*$/, ''), kind: 'folder' }) }, '..')),
    found.filter(f => kinds.includes(f.kind) || f.kind === 'folder').map(f => h('li', h('button', { onclick: () => close(f) }, h('span.mono', name(f.path)), h('span.mute', f.release ? `${f.release.title}, ε ${eps(f.release.epsilon)}` : f.kind))))), closer('Cancel', close)], true);
  return picked?.kind === 'folder' ? look(title, kinds, picked.path) : picked?.path || null;
});
const choose = once(look);
export const pickPlan = async () => { const path = await choose('Open a plan', ['plan']); if (path && await openPlan(path)) go('design'); };
export const pickRelease = async only => { const path = await choose('Open a release', ['release']); if (path && only !== true) go('explore', path); return path; };
export const pickData = async () => {
  const data = await choose('Open a data file or table', ['data', 'ledger']);
  if (!data) return;
  let table = null;
  try { await post('columns', { data, table }); } catch (error) { table = await ask(error.message, '', 'Open'); if (!table) return; }
  const dir = S.plan ? S.path.split('/').slice(0, -1) : [], at = dir.join('/') + '/'; // the plan names its data from its own folder
  await setData(data.startsWith(at) ? data.slice(at.length) : '../'.repeat(dir.length) + data, table);
  go('design');
};
// The releases beside the plan, newest first, then those of the folder.
export const releases = async () => {
  const folders = S.path ? [S.path.replace(/\.toml$/, ''), ''] : [''], found = await Promise.all(folders.map(under => post('files', { under }).then(a => a.files, () => [])));
  return found.flatMap(list => list.filter(f => f.kind === 'release').sort((a, b) => String(b.release.created).localeCompare(String(a.release.created))));
};
const demo = once(() => attempt(async () => {
  toast(tell('unpacking'));
  const { plan } = await post('demo/open');
  S.guess = { records: 336776, shape: 'smooth' };
  if (await openPlan(plan)) go('design');
}));
export const start = {
  view: () => h('div.start', words('start')),
  drawn() {
    const cards = $$('.card');
    [async () => { S.plan = null; await pickData(); }, pickPlan, demo].forEach((work, i) => { cards[i].onclick = work; });
    cards[2].hidden = !S.session.demo;
  },
};
let listed;
export const folder = {
  enter: async () => { listed = await releases(); redraw(); },
  view: () => [head(above(S.session.folder, listed && h('span', few(listed.length, 'release') + ', read only')), 'Published histograms', words('lede-folder')),
    panel('', listed?.length ? table('', listed.map(({ path, release: r, line }) => h('tr', h('td', link(r.title || path, () => go('explore', path))), h('td.hide-s', line && spark(line)), h('td.n.hide-s', count(r.bins)), h('td.n', eps(r.epsilon)), h('td.n.mute', day(r.created)))), ['Release', '>~Shape', '>~Bins', '>Epsilon', '>Published']) : h('p', words(listed ? 'norelease' : 'reading')))],
};
let book = null, chosen = null;
const current = () => book?.datasets.find(d => d.dataset === chosen);
export const create = async () => { const limit = await ask('Limit of the new ledger, such as 4', '', 'Create'); if (limit) { const made = await attempt(() => post('ledger/create', { ...named(), limit, dataset: S.plan?.dataset || S.session.dataset })); if (made) { book = made; await loadSession(); } redraw(); } };
export const ledger = {
  enter: async () => { book = await post('ledger', named()); const names = book.datasets.map(d => d.dataset); chosen = [chosen, S.plan?.dataset, names[0]].find(name => names.includes(name)); redraw(); },
  view() {
    const top = [above(S.session.ledger || 'no ledger', book?.exists && h('span', few(book.datasets.length, 'dataset') + ', opened for reading')), 'Where the budget went', words('lede-ledger')];
    if (!book) return head(...top);
    if (!book.exists || !book.datasets.length) return [head(...top), note('plain', words('noledger', { create: !book.exists && link('Create a ledger with a limit', create) }))];
    const one = current(), p = purse(), mine = d => p?.plan > 0 && d.dataset === S.session.budget.dataset;
    return [head(...top), panel('What is left', h('div.gap', book.datasets.map(d => {
      const limit = d.limit === null ? null : number(d.limit), spent = number(d.spent), left = limit - spent, low = limit !== null && left <= 0.1 * limit;
      return h('div', h('div.row.split', book.datasets.length > 1 ? link(d.dataset, () => { chosen = d.dataset; redraw(); }) : h('b', d.dataset), h('span.small' + (low ? '.c-warn' : '.mute'), limit === null ? `${eps(d.spent)} spent, no limit` : `${eps(d.left)} left of ${eps(d.limit)}${mine(d) ? `; ${digits(max(0, p.after), 4)} after this plan` : ''}${low ? '. Nearly used up.' : ''}`)),
        limit !== null && h('div.bar.thin', { role: 'img', aria: `${d.dataset}: ${eps(d.spent)} of ${eps(d.limit)} spent` }, part('k-past', spent / limit), mine(d) && part('k-plan', min(p.plan, left) / limit), h('i.left')));
    }))), h('div.cols.even', panel(`“${one.dataset}” over time`, h('div.chart', { id: 'lc' })), panel(`History of “${one.dataset}”`, scroll('History', {}, table('', [...one.entries].reverse().map(x => h('tr', h('td.nowrap.mute', day(x.when)), h('td', x.path ? link(x.what, () => go('explore', x.path)) : h('span.mute', x.what || x.mechanism)), h('td.n', x.kind === 'charge' ? eps(x.epsilon) : ''), h('td.n', eps(x.spent_after)))), ['Date', 'What', '>Epsilon', '>Spent'])))),
      number(one.spent) > 0 && h('p.hint.mt', words('worst', { dataset: one.dataset, after: one.after }))];
  },
  drawn() {
    const one = current(), box = $('#lc');
    if (!box || !one) return;
    const at = x => new Date(x.when).getTime(), charges = one.entries.filter(x => x.kind === 'charge').map(x => [at(x), number(x.spent_after)]), limits = one.entries.filter(x => x.kind === 'limit' && x.epsilon !== null).map(x => [at(x), number(x.epsilon)]), p = purse();
    if (!limits.length && one.limit !== null) limits.push([charges[0]?.[0] ?? Date.now(), number(one.limit)]);
    const points = charges.length ? charges : [[limits[0]?.[0] ?? Date.now(), 0]];
    if (limits[0]?.[0] < points[0][0]) points.unshift([limits[0][0], 0]);
    spending(box, { points, limits, until: Date.now(), plan: p && one.dataset === S.session.budget.dataset ? p.plan : 0, label: `Epsilon spent on ${one.dataset} over time, against the limit` });
  },
};
