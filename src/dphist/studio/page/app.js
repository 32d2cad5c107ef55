// The frame of the page: addresses, the bar on top, keys, light and dark.
import { post, whenGone } from './api.js';
import { $, $$, button, closer, dialog, digits, eps, h, link, min, note, on, part, swap, timer, words } from './dom.js';
import { attempt, editing, go, loadSession, newPlan, openPlan, purse, restore, S, save, whenChanged } from './state.js';
import design from './design.js';
import foresee from './foresee.js';
import publish from './publish.js';
import explore from './explore.js';
import { folder, ledger, start } from './start.js';

const VIEWS = { design, foresee, publish, explore, ledger, start, folder }, NAV = ['design', 'foresee', 'publish', 'explore', 'ledger'];
const title = name => name[0].toUpperCase() + name.slice(1);

const arrive = async () => {
  let [next, rest] = location.hash.slice(1).split('=');
  const reading = !editing(), fits = reading ? ['explore', 'folder'].includes(next) : VIEWS[next] && next !== 'folder' && (S.plan || !['design', 'foresee', 'publish'].includes(next));
  if (!fits) { next = reading ? 'folder' : S.plan ? 'design' : 'start'; rest = ''; }
  const moved = next !== S.view;
  if (moved) { VIEWS[S.view]?.leave?.(); S.trouble = null; }
  S.view = next;
  document.title = title(next) + ' – dphist studio';
  document.body.className = reading ? 'viewonly' : next === 'start' ? 'noplan' : '';
  show();
  if (moved) { $('#main').focus({ preventScroll: true }); scrollTo(0, 0); }
  await attempt(async () => VIEWS[next].enter?.(decodeURIComponent(rest || '')));
};
const told = () => {
  const t = S.trouble;
  if (S.gone) return note('bad', words('stopped', { kept: words(S.dirty ? 'kept' : 'saved'), path: S.base && S.path }));
  if (!t) return null;
  if (t.code === 'changed' && S.path) return note('bad', words('changed', { path: S.path, load: link('Load it', () => openPlan(S.path).then(arrive)), keep: link('Keep mine as a copy', () => save(S.path.replace(/\.toml$/, '-copy.toml'))) }));
  return note('bad', h('b', t.message), ' ', t.suggestion, words('charged-' + t.charged), link('Try again', () => { S.trouble = null; arrive(); }), ' ', link('Close', () => { S.trouble = null; show(); }));
};
// What is pressed is not replaced before it is released and its click was heard.
let pressed = false, waiting = false;
const released = event => { if (pressed && !event.buttons) { pressed = false; setTimeout(() => waiting && show()); } };
const show = () => {
  waiting = pressed;
  if (pressed) return;
  const bad = told();
  const left = (S.session.unfinished || []).filter(one => S.view !== 'publish' || one.path !== S.path);
  swap($('#main'), () => VIEWS[S.view].drawn?.(), bad && h('div.top18', bad), left.map(one => h('div.top18', note('warn', one.words, ' ', link('Open ' + one.path, async () => { if (await openPlan(one.path)) go('publish'); })))), VIEWS[S.view].view());
  header();
  if (S.gone) for (const one of $$('#main input, #main select, #main textarea, #main button')) one.disabled = true;
};
const header = () => {
  for (const one of $$('#nav button')) one.toggleAttribute('aria-current', one.dataset.go === S.view) && one.setAttribute('aria-current', 'page');
  const p = purse(), box = $('#budget');
  box.hidden = !p;
  if (!p) return;
  const b = S.session.budget;
  box.replaceChildren(h('span.minibar', part('k-past', p.spent / p.limit), part(p.over ? 'k-bad' : 'k-plan', min(p.plan, p.left) / p.limit)), h('span', p.plan > 0 && h('span.long', h('b.c-plan', 'ε ' + eps(S.good.epsilon)), h('span.mute', p.over ? ' this plan: ' : ' this plan, ')), h('b' + (p.over ? '.c-bad' : ''), p.over ? 'more than is left' : digits(p.after, 4)), !p.over && h('span.mute', ' left')), h('span.sr', ` of ${eps(b.limit)} for the dataset ${b.dataset}, ${eps(b.spent)} spent. Open the ledger.`));
};
const keys = () => dialog('Keys', close => [words('keys'), closer('Close', close)]);
let g = 0;
on('keydown', event => {
  if (event.target.matches('input,select,textarea') || $('dialog') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '?') keys();
  const to = Date.now() - g < 1500 && NAV.find(v => v[0] === event.key);
  g = event.key === 'g' ? Date.now() : 0;
  if (to && editing()) go(to);
});

const begin = async () => {
  const root = document.documentElement, dark = matchMedia('(prefers-color-scheme:dark)'), follow = () => { root.dataset.theme = localStorage['dphist-theme'] || (dark.matches ? 'dark' : 'light'); };
  follow();
  dark.addEventListener('change', follow);
  $('#theme').onclick = () => { localStorage['dphist-theme'] = root.dataset.theme === 'dark' ? 'light' : 'dark'; follow(); show(); };
  $('#budget').onclick = () => go('ledger');
  for (const one of $$('#nav button')) one.onclick = () => go(one.dataset.go);
  whenGone(() => { if (!S.gone) { S.gone = true; if (S.view) show(); } });
  whenChanged(() => S.view && show());
  try { await loadSession(); } catch (error) {
    return $('#main').replaceChildren(note('bad', words('closed', { what: error.status === 401 ? words('entrance') : error.message })));
  }
  if (editing() && !await restore()) { if (S.session.plan) await openPlan(S.session.plan, true); else if (S.session.data) await newPlan(S.session.data); }
  on('pointerdown', event => { pressed = !event.target.closest('select'); }, true);
  on('pointerup pointercancel pointermove blur', released); // a move without a button: it was released where nothing tells, as on a scroll bar
  on('hashchange', arrive);
  on('focus', () => { const { base, path } = S; if (base) post('plan/open', { path }).then(now => { if (path === S.path && base === S.base && now.file_digest !== S.base && now.plan_digest !== S.good?.plan_digest) { S.trouble = { code: 'changed' }; show(); } }, () => {}); });
  let wide = innerWidth;
  const resized = timer();
  on('resize', () => { if (innerWidth !== wide) { wide = innerWidth; resized(show, 100); } });
  await arrive();
  root.dataset.ready = 'yes';
};
begin();
