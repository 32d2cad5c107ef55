// Foresee: the error to live with, what it costs, and a dozen releases one might get. One request in flight.
import { latest, post, Refusal, stream } from './api.js';
import { between, crossing, errors, histogram, most, multiples, spanned, strip } from './charts.js';
import { $, abs, button, choice, count, digits, entries, eps, few, floor, focused, h, head, item, keysOf, link, log, max, min, note, number, part, percent, rough, round, say, scroll, select, spoken, table, tell, timer, times, typing, within, words } from './dom.js';
import { attempt, change, faults, go, keep, purse, redraw, S, setEpsilon } from './state.js';
import { crumb, swatch } from './design.js';
import { releases } from './start.js';

const TAB = Math.random().toString(36).slice(2);
let late = false, sequence = 0, running = null, parts = {}, key = '', mode = 'overlay', ratio = false, range = null, reading = null, shown = 0, player, earlier = [], drawing = false, asTable = false, moveDot, tried = '';
const asks = timer(), slow = timer(), due = timer(), asking = latest(), aiming = latest();
const chosen = () => S.good.histograms[S.hist];
const seen = {}; // of each histogram, its error and the question it answers
const shape = ({ shape: name, values }) => name === 'drawn' ? { values } : name.startsWith('release:') ? { release: name.slice(8) } : { name };
const body = histogram => ({ plan: S.good.plan, path: S.path, histogram, records: S.guess.records, shape: shape(S.guess) });
const question = hist => JSON.stringify([S.good?.plan_digest, hist, S.guess, !!S.published]);
// What was foreseen of a histogram of the plan as it is, once it is final.
export const foreseen = name => seen[name]?.of === question(name) && seen[name].final ? seen[name] : {};
const stop = () => { running?.abort(); running = null; asks(); slow(); };
// Nothing that was typed or asked before is about what is shown next.
const forget = () => { due(); aiming(true); asking(true); reading = null; };
const ended = () => { stop(); parts.progress = parts.old = null; ranged(); redraw(); };

// Asks for the histogram in view, then for the errors of the others.
const run = (wait = 0) => {
  const mine = question(S.hist), rest = keysOf(S.good?.histograms || {}).filter(n => !foreseen(n).final);
  if (!S.good || !S.hist || S.view !== 'foresee' || (running && mine === key)) return;
  const next = mine !== key ? S.hist : rest.find(n => n !== S.hist);
  if (!next || (mine === key && tried === question(next))) return; // what is in view is asked whatever was tried
  stop();
  asks(() => attempt(async () => {
    const abort = running = new AbortController(), own = next === S.hist, old = parts, asked = tried = question(next);
    slow(() => { late = true; redraw(); }, 200);
    if (own) { key = mine; parts = { old: { ...old.old, ...old }, curves: {} }; late = false; reading = null; asking(true); }
    const failed = ({ message }) => { seen[next] = { of: asked, final: true }; if (own && running === abort) parts.failed = message; };
    try {
      await stream('foresee', { ...body(next), sequence: ++sequence, tab: TAB }, abort.signal, part => {
        if (part.part === 'error') seen[next] = { ...(seen[next]?.of === asked && seen[next]), of: asked, error: part.error, final: part.final };
        if (part.part === 'warnings') seen[next].warnings = part.warnings;
        if (part.part === 'failed') failed(part.error);
        if (!own) { if (part.final || part.part === 'failed') { abort.abort(); redraw(); } return; }
        if (part.part === 'curve') parts.curves[part.method] = part.points.map(([e, v]) => [e / number(S.good.histograms[next].share), v]).filter(p => p[1] > 0);
        else parts[part.part] = part;
        if (part.part === 'outcomes' && !(range?.[1] < part.truth.length)) range = [0.25, 0.33].map(at => floor(at * part.truth.length));
        if (part.part !== 'progress') redraw(); else progress();
      });
    } catch (error) { if (error instanceof Refusal) failed(error); else if (error.name !== 'AbortError') throw error; }
    if (running !== abort) return;
    if (own) { ended(); say(spoken(S.good.epsilon, parts.error?.error)); } else stop();
    run();
  }), wait);
};
// The interval of the brushed range.
const ranged = () => {
  const signal = asking(), of = range;
  if (range && parts.error && !isGrid(parts.outcomes)) attempt(async () => { reading = { ...await post('foresee/range', { ...body(S.hist), lo: of[0], hi: of[1] + 1 }, signal), of }; reads(); });
};
const isGrid = o => o?.shape?.length > 1;
const spot = () => ({ ...parts.old, ...parts });
const axis = () => chosen().axes[0], named = i => axis().names?.[i] ?? String(i + 1);
const reads = () => {
  const r = reading, box = $('#reads');
  if (box && r) box.replaceChildren(item(`${spanned(axis(), ...r.of)}, expected`, count(r.expected)), item('95 % interval of this range', within(r.half)), item('relative', percent(r.relative)), h('span.hint.full', spot().widths?.joint?.[0] ? words('band', { n: count(axis().n) }) : words('band9')));
};
const progress = () => {
  const p = parts.progress, box = $('#slow');
  box?.replaceChildren(...(p && running ? [h('div.row.split', h('span.small', `Simulating ${p.words}, step ${p.done + 1} of ${p.of}. The numbers above are final.`), button('Cancel', ended, 'tiny')), h('div.prog', part('i', p.done / p.of))] : []));
};
// Moves epsilon; while a pointer is down only the curve already here is read.
const moveTo = (value, final) => {
  const e = digits(max(1e-3, min(100, value)), 2), near = between(parts.curves?.[parts.error?.method], e), error = $('#err');
  for (const id of ['#eps', '#sl']) if ($(id) && focused() !== $(id)) $(id).value = id === '#sl' ? log(e) : e;
  if (error && isFinite(near)) error.value = '≈ ' + rough(near);
  moveDot?.(e, near);
  if (final) setEpsilon(String(e), 120);
};
const setError = value => attempt(async () => {
  const of = question(S.hist), { epsilon } = await post('target', { ...body(S.hist), error: value }, aiming());
  if (of === question(S.hist)) await setEpsilon(epsilon); // and not of another plan by now
});
const typedError = text => { const v = text.replace(/[≈,\s]/g, ''); if (Number(v) > 0) setError(Number(v)); else if (/^[\d.]+%$/.test(v)) setError(v); };
// What is typed counts after a while, or at once when the field is left.
const later = (work, wait = 450) => ({ oninput: typing(v => due(() => work(v), wait)), onchange: typing(v => { due(); work(v); }) });

const equation = () => {
  const { error: e, odds: o } = spot(), p = purse(), b = S.session.budget, what = { points: 'A bin', ranges: 'A range', prefixes: 'A sum from the start' }[chosen().workload] || 'An answer';
  const after = o?.after ?? 50;
  return h('section.panel' + (late && !parts.error ? '.busy' : ''), { aria: 'Error, epsilon and budget', id: 'numbers', 'aria-busy': String(question(S.hist) !== key || (!parts.error && !parts.failed)) },
    words('equation', {
      what, hist: S.hist, unit: S.good.whom, own: eps(chosen().epsilon), err: h('input', { id: 'err', k: 'err', inputmode: 'decimal', aria: 'Typical error in records', value: e ? rough(e.error) : '', ...later(typedError, 900) }), about: e ? `typical error${e.within ? `; 95 of 100 are within ± ${rough(e.within)}` : ''}${e.relative ? `; ${percent(e.relative)} of a typical answer` : ''}` : parts.failed ? 'not known' : 'being simulated',
      eps: h('input', { id: 'eps', k: 'eps', inputmode: 'decimal', aria: 'Epsilon of the plan', value: S.plan.epsilon, ...later(v => { if (v > 0 && v.trim() !== S.plan.epsilon) { aiming(true); setEpsilon(v.trim()); } }) }),
      left: h('p.big' + (p?.over ? '.c-bad' : ''), p ? p.over ? 'nothing' : digits(p.after, 4) : '–', p && h('small', 'of ' + eps(b.limit))), later: p ? p.over ? `The ledger has ${eps(b.left)} left: this would be refused.` : 'for all later releases of the dataset ' + b.dataset : words('unmade'),
      dots: h('div.dots', { role: 'img', aria: `50 of 100 before, at most ${after} of 100 after` }, times(100, i => h('i' + (i < 50 ? '.a' : i < after ? '.b' : '')))), odds: o?.words,
      slider: h('input', { type: 'range', id: 'sl', k: 'sl', min: log(0.01), max: log(10), step: 0.01, aria: 'Epsilon of the plan', value: log(number(S.good.epsilon)), 'aria-valuetext': spoken(S.good.epsilon, e?.error), oninput: typing(v => moveTo(Math.exp(v), true)) }),
    }));
};
const guessing = () => h('p.small', 'Your guess: about ', h('input.f.w8', { k: 'records', aria: 'Number of records, a guess', 'aria-describedby': 'guess', value: count(S.guess.records), inputmode: 'numeric', ...later(text => { const v = +text.replace(/[,\s]/g, ''); if (v > 0 && v <= 9e15) { S.guess.records = round(v); keep(); run(); } }) }), ' records, shaped like ',
  select('.f', 'shape', 'Shape', [...S.session.shapes.map(x => [x.name]), ...earlier.map(r => ['release:' + r.path, r.release.title || r.path]), ...(S.guess.values ? [['drawn', 'drawn by hand']] : [])], S.guess.shape, v => { S.guess.shape = v; drawing = false; keep(); redraw(); }), ' ', spot().outcomes && !isGrid(spot().outcomes) && !chosen().groups && button(drawing ? 'Done drawing' : 'Draw it', draw, 'tiny'));
const draw = () => {
  drawing = !drawing;
  mode = 'overlay';
  if (drawing) S.guess.values = [...spot().outcomes.truth]; else { S.guess.shape = 'drawn'; keep(); }
  redraw();
};
const anchors = () => h('div.row', times(9, i => { const v = S.guess.values, at = round(i * (v.length - 1) / 8); return h('label.small', named(at), ' ', h('input.f.w6', { value: round(v[at]), k: 'anchor' + i, aria: 'Height at ' + named(at), onchange: typing(height => { const to = max(0, +height || 0), w = max(1, v.length / 8); for (let j = 0; j < v.length; j++) { const t = max(0, 1 - abs(j - at) / w); v[j] += t * (to - v[j]); } redraw(); }) })); }));

const titled = (...rest) => head(crumb(), 'How wrong will it be?', ...rest);
export default {
  async enter() { earlier = await releases(); redraw(); },
  leave() { stop(); forget(); clearInterval(player); key = tried = ''; parts = {}; },
  view() {
    if (!S.good) return [titled(words('incomplete'), button('Back to the design', () => go('design'), 'pri'))];
    if (question(S.hist) !== key) run(100); else run();
    const now = spot(), names = keysOf(S.good.histograms), own = now.error?.method, cross = parts.curves && crossing(parts.curves, own), w = now.widths?.lengths || [], longest = most(w.map(x => x.each || 0)), p = purse();
    return [titled(words('lede-foresee'), button('Go to publish →', () => go('publish'), 'pri')),
      choice('Histogram', names.map(n => [n, swatch(n), n, h('span.mute', foreseen(n).error && within(foreseen(n).error))]), S.hist, n => { if (n === S.hist) return; S.hist = n; forget(); range = null; parts = {}; drawing = false; }, 'tabs'),
      faults().length > 0 && note('warn', faults()[0].message, ' ', words('last')), parts.failed && note('bad', parts.failed, ' Nothing was charged.'), equation(),
      words('foresee', {
        modes: choice('Show outcomes', [['overlay', 'Together'], ['multi', 'Side by side'], ['play', 'One by one']], mode, m => { mode = m; }), guess: guessing(),
        group: now.outcomes?.group && words('onegroup', now.outcomes), strip: !drawing && mode !== 'multi' && words('strip'), reads: drawing ? [words('draw', { n: count(S.guess.records) }), anchors()] : h('div.read', { id: 'reads' }), more: link(asTable ? 'Hide the table' : 'Show as table', () => { asTable = !asTable; redraw(); }),
        table: asTable && now.outcomes && scroll('Table of the guess', {}, table('', now.outcomes.truth.slice(0, 400).map((v, i) => h('tr', h('td', named(i)), h('td.n', count(v)), h('td.n', within(now.widths?.each?.[i])), h('td.n', count(now.outcomes.outcomes[0][i])))), ['Bin', '>Guess', '>95 % interval', '>One release'])),
        scales: choice('Scale', [[false, 'In records'], [true, 'Compared']], ratio, r => { ratio = r; }), hint: ratio ? `Error divided by that of ${own}. Below × 1 is better.` : words('inrecords'), advice: [now.advice?.words, ' ', now.advice?.ratio > 1.01 && link('Use ' + now.advice.method, () => change(plan => { plan.histograms[S.hist].method = now.advice.method; }, 0)), cross && ` Above epsilon ${digits(cross.at, 2)} (circle) ${cross.name} is better on this guess.`],
        widths: w.length ? table('.small', w.map(x => h('tr', h('td.nowrap', x.bins === 1 ? 'one bin' : x.bins === axis().n ? `all ${count(x.bins)} bins` : few(x.bins, 'neighbouring bin')), h('td.wide45', part('meter', x.each / longest)), h('td.n', within(x.each))))) : h('p.hint', now.widths?.note || (parts.end || parts.failed ? 'Not known for this plan.' : '')),
      }),
      h('section.gap.mt', { aria: 'Notes' }, p?.over && note('bad', words('toomuch', { e: eps(S.good.epsilon), left: eps(S.session.budget.left) })), (now.warnings?.warnings || []).map(one => note('warn', one.message, ' ', one.remedy && link(one.remedy.label, () => change(plan => { const at = plan.histograms[S.hist]; for (const [k, v] of entries(one.remedy.histogram)) if (v === null) delete at[k]; else at[k] = v; }, 0)))))];
  },
  drawn() {
    clearInterval(player);
    const now = spot(), o = now.outcomes, box = $('#oc'), tab = $('[aria-selected=true]');
    if (!S.good || !box) return;
    tab.parentNode.scrollLeft = tab.offsetLeft - 60;
    if (o) {
      const half = now.widths?.joint, band = half?.[0] && half.length === o.truth.length ? [-1, 1].map(d => o.truth.map((v, i) => v + d * half[i])) : [o.low, o.high], base = { values: o.truth, band, draws: mode === 'play' ? [o.outcomes[shown % o.outcomes.length]] : o.outcomes, axis: isGrid(o) ? { n: o.truth.length, kind: 'flat', name: 'cells, row by row' } : axis(), label: tell('outcomes') };
      if (drawing) histogram(box, { values: S.guess.values, axis: axis(), label: tell('expect'), top: most(o.truth) * 1.5, draws: [], draw: () => {} });
      else if (mode === 'multi') multiples(box, base);
      else histogram(box, { ...base, range: isGrid(o) ? null : range, names: named, move: r => { range = r; }, end: ranged });
      if (!drawing && mode !== 'multi') strip($('#oe'), { ...base, label: tell('off') });
      if (mode === 'play' && !matchMedia('(prefers-reduced-motion:reduce)').matches) player = setTimeout(() => { shown++; if (!box.contains(focused())) this.drawn(); }, 450);
      reads();
    }
    const p = purse(), own = now.error?.method, curves = keysOf(parts.curves || {}).length ? parts.curves : now.curves || {}, xs = Object.values(curves).flat().map(q => q[0]), e = number(S.good.epsilon);
    moveDot = errors($('#cc'), { curves, own, ratio, ends: [min(e, ...xs) * 0.95, max(e, ...xs) * 1.05], left: p ? p.left : Infinity, epsilon: e, error: now.error?.error, cross: crossing(curves, own), move: moveTo, label: `Typical error against epsilon, the best of ${few(keysOf(curves).length, 'method')}` });
    progress();
  },
};
