// Publish: the receipt, the typed confirmation, one charge however often it is pressed.
import { latest, post } from './api.js';
import { $, button, day, dialog, digits, eps, few, h, head, icon, link, min, note, number, panel, part, table, within, words } from './dom.js';
import { attempt, designed, faults, go, histogramNames, loadSession, purse, redraw, S, save, setEpsilon } from './state.js';
import { crumb, swatch } from './design.js';
import { makeReport } from './explore.js';
import { foreseen } from './foresee.js';
import { create } from './start.js';

let asking = null, ready = null, done = null, fresh = false;
const isRunning = now => !['new', 'published', 'finishable', 'lost'].includes(now.state);
const id = ({ path, publish_token, plan_digest }) => ({ path, publish_token, plan_digest });
const fits = now => now?.path === S.path && now.plan_digest === S.good?.plan_digest; // is about the plan that is shown
const took = answer => { done = answer; S.published = fits(done); redraw(); };
const preparing = latest(), prepare = again => attempt(async () => {
  const mine = asking = preparing();
  ready = null;
  try {
    if (S.dirty && S.autosave) await save();
    if (S.dirty || !S.good || faults().length || !S.session.budget?.exists) return redraw();
    ready = await post('publish/prepare', { path: S.path, plan_digest: S.good.plan_digest, again: !!again }, mine);
  } finally { if (asking === mine) asking = null; }
  if (!fits(ready)) return redraw(); // and what is shown is asked for
  if (ready.limit) S.session.budget = ready;
  took(ready.state === 'published' ? ready : null);
  if (isRunning(ready)) { await watch(ready, now => mine.aborted || (now && !isRunning(now))); if (!mine.aborted) await prepare(); }
});
// Says how far a publication is, until it ends; never publishes by itself.
const watch = async (of, isOver) => {
  for (let now; await new Promise(next => setTimeout(next, 400)), !isOver(now) && !S.gone;) {
    now = await post('publish/state', id(of)).catch(() => null);
    if (now && now.state !== 'new' && $('#phase')) $('#phase').textContent = `${now.words} Closing this tab is harmless.`;
  }
};
// Spends what was prepared, once the words are typed; resolves with the answer to the question `path`, or null.
// Escape closes the dialog, and takes back nothing.
export const charge = async (r, what, path, about) => {
  let sent = null;
  await dialog(`Charge epsilon ${eps(r.charge)} to “${r.dataset}”?`, close => {
    const yes = h('button.btn.spend', { type: 'submit', disabled: true }, what), no = button('Do not ' + what.toLowerCase(), () => close()), input = h('input', { id: 'cf', autofocus: true, oninput: () => { yes.disabled = input.value.trim() !== r.phrase; } });
    const send = async () => {
      let over = false;
      watch(r, () => over);
      const answer = await attempt(() => post(path, { ...about, ...id(r), confirm: input.value.trim() }));
      over = true;
      await attempt(loadSession);
      close();
      return answer;
    };
    yes.addEventListener('click', () => { if (!sent) { yes.disabled = input.disabled = no.disabled = true; sent = send(); } });
    return [words('confirm', { phrase: r.phrase, left: r.left_after !== null && words('afterwards', { left: eps(r.left_after), limit: eps(r.limit) }) }), input, h('p.small', { id: 'phase', role: 'status' }), h('div.row.end', no, yes)];
  });
  return sent;
};
const confirm = async () => {
  const answer = await charge(ready, 'Publish', 'publish');
  if (answer) { fresh = !answer.again; took(answer); $('#main').focus(); } else if (S.trouble) { const was = S.trouble; await prepare(); S.trouble = was; redraw(); }
};
const bar = () => {
  const p = purse();
  if (!p) return words('nolimit');
  const all = p.over ? p.spent + p.plan : p.limit, key = (cls, name, v) => h('span', h('i.' + cls), name + ' ', h('b', digits(v, 4)));
  return [h('div.barbox', h('div.bar', { role: 'img', aria: `Spent ${p.spent}, this plan ${p.plan}, limit ${p.limit}` }, part('k-past', p.spent / all), part('k-plan', min(p.plan, p.left) / all), h(p.over ? 'i.over' : 'i.left')), p.over && h('span.limit', { css: { left: 100 * p.limit / all + '%' } })),
    h('div.legend', key('k-past', 'Spent', p.spent), !S.published && key('k-plan', 'This plan', p.plan), p.over ? key('k-bad', 'Beyond the limit', p.plan - p.left) : key('k-left', S.published ? 'Left' : 'Left afterwards', p.after), h('span', 'Limit ', h('b', p.limit)))];
};
const anew = () => link('Publish again as a new charge', async () => { if (asking) return; done = null; fresh = false; S.published = false; await prepare(true); if (ready?.allowed) await confirm(); if (!done && ready?.allowed && !S.trouble) prepare(); });
const named = (name, hint, right) => h('tr', h('td', h('span.row.name', swatch(name), h('span', h('b', name), h('br'), h('span.hint', hint)))), h('td.n', right));
const published = () => {
  const { releases } = done.publication;
  return [head(crumb(), 'Published', `Epsilon ${eps(done.charged ?? ready?.charge)} was charged once${done.entry ? `, as entry ${done.entry} of the ledger` : ''}${done.when ? `, on ${day(done.when, true)}` : ''}.`), !fresh && h('div.top18', note('plain', words('again'))),
    h('div.cols.side', h('div.stack', panel(few(releases.length, 'release').replace(/^./, c => c.toUpperCase()), table('.receipt', releases.map(r => named(r.name, r.path, link('Explore ' + r.name, () => go('explore', r.path)))))), panel(`The budget of “${ready?.dataset ?? S.plan.dataset}”`, bar())),
      h('aside.stack', panel('', words('report', { make: button('Make the report', () => makeReport(releases.map(r => r.path)), 'pri'), explore: button('Explore first', () => go('explore', releases[0].path)) })), panel('', words('more', { again: anew() }))))];
};
export default {
  async enter() { if (!fresh || S.dirty || !fits(done)) { fresh = false; done = null; if (!asking) await prepare(); } },
  leave() { preparing(true); ready = asking = null; },
  view() {
    if (S.published && fits(done)) return published();
    if (!fits(ready)) ready = null;
    const names = histogramNames(), r = ready, top = head(crumb(), 'Publish ' + few(names.length, 'histogram'), words('lede-publish')), stuck = r && r.state !== 'new';
    if (!S.good || faults().length) return [top, note('plain', 'The plan is not complete yet: ', faults()[0]?.message, ' ', designed())];
    if (S.dirty) return [top, note('plain', words('unsaved', { save: link('Save and go on', async () => { if (await save()) prepare(); }) }))];
    if (!S.session.budget?.exists) return [top, note('plain', words('noledger', { create: link('Create a ledger with a limit', create) }))];
    if (!r && !asking && !S.trouble) prepare();
    if (!r) return [top, h('p.hint', words('checking'))];
    return [top, h('div.cols.side', h('div.stack',
      stuck && note(isRunning(r) ? 'plain' : 'bad', h('span', { id: 'phase' }, r.words), ' ', r.state === 'finishable' && link('Finish it without a new charge', () => attempt(async () => { const answer = await post('publish/finish', id(r)); await loadSession(); took(answer); })), r.state === 'lost' && anew()),
      panel('The charge', table('.receipt', [...r.histograms.map(one => named(one.name, [one.file, foreseen(one.name).error && `; typical error ${within(foreseen(one.name).error)} records`], 'ε ' + eps(one.epsilon))), h('tr.tot', h('td', `${r.allowed ? 'Charged once to' : 'Would be charged to'} the dataset “${r.dataset}”`), h('td.n.c-plan', 'ε ' + eps(r.charge)))])),
      panel('', h('h2', `The budget of “${r.dataset}” in `, h('span.mono', r.ledger)), bar()),
      !r.allowed && note('bad', words('refused', { reason: r.reason, use: number(r.most) > 0 && [link(`Use ${eps(r.most)} instead`, () => setEpsilon(r.most).then(() => save()).then(() => prepare())), '. '] })),
      r.allowed && names.flatMap(n => foreseen(n).warnings || []).map(one => note('warn', one.message)),
      h('div.row', h('button.btn.spend', { id: 'pub', disabled: !r.allowed || stuck, onclick: confirm }, `Publish and charge ε ${eps(r.charge)}`), button('Back to the error', () => go('foresee')))),
      h('aside.stack', panel('Checked just now', h('ul.checks', r.checks.map(c => h('li' + (c.ok ? '' : '.c-bad'), h('span' + (c.ok ? '.c-good' : '.c-bad'), icon(c.ok ? 'ok' : 'bad', 'bold')), h('span', c.message))))),
        panel('', words('promise', r)), panel('', words('files', { n: few(names.length, 'release file'), folder: r.folder }))))];
  },
};
