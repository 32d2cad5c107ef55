// What the page holds: the session, the plan being edited, what the server said of it.
import { latest, post, Refusal } from './api.js';
import { assign, keysOf, link, number, redraw, timer, whenChanged } from './dom.js';

export const S = { columns: [], guess: { records: 10000, shape: 'smooth' } };
const checks = timer(), saving = timer();
let last = Promise.resolve(), edits = 0;
const checking = latest();
export { redraw, whenChanged };
export const go = (view, rest) => { const to = '#' + view + (rest ? '=' + encodeURIComponent(rest) : ''); if (location.hash === to) dispatchEvent(new Event('hashchange')); else location.hash = to; };

export const designed = () => link('Go to the design', () => go('design'));

export const attempt = async work => {
  try { return await work(); } catch (error) {
    if (error.name === 'AbortError' || S.gone) return null;
    if (!(error instanceof Refusal)) console.error(error);
    S.trouble = error instanceof Refusal ? error : { message: 'The page made a mistake.', charged: 'unknown' };
    redraw();
    return null;
  }
};
export const loadSession = async () => { S.session = await post('session', named()); };
export const named = () => ({ path: S.base && S.path }); // a plan that is on disk
export const histogramNames = () => keysOf(S.plan.histograms);
export const faults = () => S.check?.problems || []; // of the plan as it is
export const setEpsilon = (epsilon, wait = 0) => change(plan => assign(plan, { epsilon }), wait);
export const editing = () => S.session.mode === 'edit';
// The budget as numbers to draw; the server alone decides.
export const purse = () => {
  const b = S.session?.budget;
  if (!b?.exists || b.limit === null) return null;
  const plan = S.published || !S.good ? 0 : number(S.good.epsilon), left = number(b.left);
  return { limit: number(b.limit), spent: number(b.spent), left, plan, after: left - plan, over: plan > left + 1e-12 };
};
const KEPT = ['path', 'plan', 'base', 'dirty', 'autosave', 'guess', 'hist'];
export const keep = () => { sessionStorage['dphist-draft'] = JSON.stringify(Object.fromEntries(KEPT.map(key => [key, S[key]]))); };
const took = answer => {
  S.check = answer;
  S.published = answer.published;
  if (!faults().length) S.good = answer;
  const names = keysOf((S.good || S.plan).histograms); // what is foreseen is the last plan that was complete
  if (!names.includes(S.hist)) S.hist = names[0] || null;
  keep();
};
const loadColumns = async () => {
  const { plan, path } = S, { data, table } = plan, found = data ? await post('columns', { data, table, path }).then(a => a.columns || [], () => []) : [];
  if (plan === S.plan) { S.columns = found; redraw(); }
};
export const openPlan = (path, isTold) => attempt(async () => {
  if (S.autosave && S.dirty && !faults().length && !await save()) return null; // and it is said why
  const answer = await post('plan/open', { path });
  checking(true);
  assign(S, { path: answer.path, plan: structuredClone(answer.plan), base: answer.file_digest, dirty: false, autosave: false, good: null, trouble: null });
  took(answer);
  S.columns = [];
  if (!isTold) await loadSession(); // which told of the plan of the start
  setTimeout(loadColumns, 40); // the plan is drawn first, and can be read without them
  return true;
});
export const newPlan = async (data, table) => {
  const stem = data.replace(/^.*\//, '').replace(/\..*$/, '') || 'plan', plan = { data, table, ledger: /^\/|:/.test(S.session.ledger) ? null : S.session.ledger, dataset: stem, epsilon: '0.5', histograms: {} };
  assign(S, { path: stem + '.toml', plan, base: null, dirty: true, autosave: false, good: null, check: null });
  await loadColumns();
  await recheck();
};
export const setData = async (data, table) => { if (!S.plan) return newPlan(data, table); await change(plan => assign(plan, { data, table }), 0); await loadColumns(); };
export const restore = async () => { // after a reload, the draft of this tab
  const kept = JSON.parse(sessionStorage['dphist-draft'] ?? null);
  if (!kept?.plan) return false;
  if (!kept.dirty && !await openPlan(kept.path)) return false;
  assign(S, kept.dirty ? kept : { autosave: kept.autosave, guess: kept.guess, hist: kept.hist });
  if (kept.dirty) { await loadSession(); await loadColumns(); await recheck(); }
  return true;
};
const recheck = () => attempt(async () => {
  took(await post('plan/check', { plan: S.plan, path: S.path }, checking()));
  saving(() => S.autosave && S.dirty && !faults().length && save(), 700);
  redraw();
});
export const change = (edit, wait = 180) => {
  edit(S.plan);
  edits++;
  S.dirty = true;
  S.published = false;
  keep();
  if (!wait) redraw();
  return new Promise(done => checks(() => recheck().then(done), wait));
};
// One after the other, and of the plan that was shown when it was asked for.
export const save = (path = S.path, { plan } = S) => last = last.then(() => attempt(async () => {
  if (plan !== S.plan) return null;
  const now = edits;
  S.autosave = false;
  const answer = await post('plan/save', { path, plan: S.plan, base_digest: path === S.path ? S.base : null });
  if (plan !== S.plan) return true;
  assign(S, { path: answer.path, base: answer.file_digest, dirty: now !== edits, autosave: true, trouble: null });
  if (S.dirty) await recheck(); else took(answer); // what was typed meanwhile is saved next
  await loadSession();
  redraw();
  return true;
}));
