// Drawing and nothing else: every number was computed by the server. Handles are sliders, for keys and pointers.
import { abs, attributes, ceil, count, digits, floor, h, keysOf, log, max, min, on, rough, round, s, slider, spoken, tell, times, valued } from './dom.js';

const frame = (box, height, label, role = 'img') => {
  const width = max(240, box.clientWidth), svg = s('svg', { viewBox: `0 0 ${width} ${height}`, height, role, aria: label });
  box.replaceChildren(svg);
  return [svg, width];
};
const text = (x, y, words, anchor = '', cls) => s('text', { x, y, class: anchor + ' ' + (cls || '') }, words);
const rule = (x1, x2, y1, y2, cls) => s('line', { x1, x2, y1, y2, class: cls });
const curve = (d, cls) => s('path', { d, class: cls });
const area = (x, y, width, height, cls, rx) => s('rect', { x, y, width, height, class: cls, rx });
const spot = (cx, cy, r, cls) => s('circle', { cx, cy, r, class: cls });
const moved = (node, x, y) => attributes(node, { transform: `translate(${x} ${y})` });
const clamp = (v, a, b) => max(a, min(b, v));
const least = values => values.reduce((a, b) => min(a, b), Infinity);
export const most = values => values.reduce((a, b) => max(a, b), -Infinity);
const join = points => points.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
// Of more than two bins a pixel, only the least and the most of each pixel are drawn.
const thin = (values, room) => {
  const n = values.length;
  if (n <= 2 * room) return values.map((v, i) => [i, v]);
  return times(floor(room), p => {
    const a = floor(p * n / room), part = values.slice(a, max(a + 1, floor((p + 1) * n / room)));
    return [a + part.indexOf(least(part)), a + part.indexOf(most(part))].sort((i, j) => i - j).map(i => [i, values[i]]);
  }).flat();
};
const lines = (values, x, y, room) => join(values.length * 6 < room ? corners(values, x, y, room) : thin(values, room).map(([i, v]) => [x(i + 0.5), y(v)]));
const corners = (values, x, y, room) => values.length > room ? thin(values, room).map(([i, v]) => [x(i + 0.5), y(v)]) : values.flatMap((v, i) => [[x(i), y(v)], [x(i + 1), y(v)]]);
const band = (low, high, x, y, room, cls = 'band') => curve(join([...corners(high, x, y, room), ...corners(low, x, y, room).reverse()]) + 'Z', cls);

const drawn = (values, x, y, room, all) => curve(lines(values, x, y, room), all.length > 1 ? 'draw faint' : 'draw');

const nice = (span, parts) => { const raw = span / parts || 1, p = 10 ** floor(Math.log10(raw)), f = raw / p; return (f > 5 ? 10 : f > 2 ? 5 : f > 1 ? 2 : 1) * p; };
const short = v => abs(v) >= 1e6 || (v && abs(v) < 1e-3) ? digits(v, 4).toExponential().replace('e+', 'e') : (digits(v, 6)).toLocaleString('en').replace('-', '−');
const isLog = e => e[0] > 0 && e.length > 3 && abs(e[1] / e[0] / (e.at(-1) / e.at(-2)) - 1) < 1e-6;
// Where the marks of an axis stand, in bins from the left, and what is written there.
const ticks = (axis, width) => {
  const { n, kind, edges: e } = axis, room = max(2, floor(width / 76)), out = [];
  if (e && (kind === 'integers' || kind === 'regular')) {
    const a = e[0], span = e.at(-1) - a, half = kind === 'integers' ? 0.5 : 0, step = max(nice(span, room), 2 * half), whole = e.length === n + 1;
    for (let v = ceil(a / step) * step; whole && v <= e.at(-1) - 2 * half + 1e-9 * span; v += step) out.push([(v - a + half) / span * n, short(digits(v, 12))]);
  } else if (e && kind === 'variable' && isLog(e)) {
    const a = Math.log10(e[0]), b = Math.log10(e.at(-1));
    for (let p = ceil(a - 1e-9); p <= b + 1e-9; p += max(1, ceil((b - a) / room))) out.push([(p - a) / (b - a) * n, short(10 ** p)]);
  }
  const by = ceil(n / room), letters = max(5, floor(width / min(room, n) / 7));
  if (out.length < 2) for (let i = out.length = 0; i < n; i += by) { const name = String(axis.names?.[i] ?? i + 1); out.push([i + 0.5, name.length > letters ? name.slice(0, letters - 1) + '…' : name]); }
  return out;
};
// A range of bins in words.
export const spanned = ({ kind, edges, names }, a, b) => /regular|variable/.test(kind) && edges?.[b + 1] !== undefined ? `${short(edges[a])} to ${short(edges[b + 1])}` : a === b ? names?.[a] ?? String(a + 1) : `${names?.[a] ?? a + 1} to ${names?.[b] ?? b + 1}`;
const across = (svg, x, axis, width, height, m) => {
  for (const [at, name] of ticks(axis, width - m.l - m.r)) svg.append(rule(x(at), x(at), height - m.b, height - m.b + 4, 'l2'), text(x(at), height - m.b + 18, name));
  svg.append(text(width - m.r, height - 2, axis.name || '', 'end'));
};
const upwards = (svg, y, lo, top, width, m, show = short) => {
  const step = nice(top - lo, 4);
  for (let v = ceil(lo / step) * step; v <= top; v += step) { const zero = abs(v) < step / 1e6; svg.append(rule(m.l, width - m.r, y(v), y(v), zero ? 'l2' : 'lg'), text(m.l - 8, y(v) + 4, show(zero ? 0 : v), 'end')); }
};
export const ARROWS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
export const drag = (node, move, end) => node.addEventListener('pointerdown', start => {
  start.preventDefault();
  const stop = new AbortController(), go = e => move(e, start), done = () => { stop.abort(); end?.(); };
  on('pointermove', go, stop);
  on('pointerup pointercancel', done, stop);
  go(start);
});
// Where a pointer is in a box.
const within = (box, e) => { const { left, top } = box.getBoundingClientRect(); return [e.clientX - left, e.clientY - top]; };
// How far a pointer is along a part of a box, from 0 to 1.
const along = (box, e, left, room) => clamp((within(box, e)[0] - left) / room, 0, 1);
const binAt = (n, ...at) => min(n - 1, floor(n * along(...at)));

// A range of bins, to be moved by pointer or keys; the drawing below stays as it is.
const brush = (box, svg, o) => {
  const { n, left, right, top, bottom } = o, x = i => left + (right - left) * i / n;
  let [a, b] = o.range;
  const shade = area(0, top, 0, bottom - top, 'shade'), hit = area(left, top, right - left, bottom - top, 'cross');
  const end = () => o.end?.([a, b]), tell = next => { set(next); o.move?.(next); };
  const one = (which, v) => { const next = [a, b]; next[which] = clamp(v, which ? a : 0, which ? n - 1 : b); tell(next); };
  const grips = [0, 1].map(which => slider(s('g', { class: 'handle', k: 'brush' + which }, area(-12, top, 24, bottom - top, 'hit'), rule(0, 0, top, bottom, 'lp'), area(-4, (top + bottom) / 2 - 13, 8, 26, 'grip2', 4)), (which ? 'End' : 'Start') + ' of the selected range', [0, n - 1], ARROWS, d => { one(which, (which ? b : a) + d); end(); }));
  const set = range => {
    [a, b] = range;
    attributes(shade, { x: x(a), width: x(b + 1) - x(a) });
    grips.forEach((g, i) => valued(moved(g, x(i ? b + 1 : a), 0), range[i], o.names(range[i])));
  };
  const bin = e => binAt(n, box, e, left, right - left);
  drag(hit, (e, start) => tell([bin(start), bin(e)].sort((p, q) => p - q)), end);
  grips.forEach((g, i) => drag(g, e => one(i, bin(e)), end));
  svg.append(shade, hit, ...grips);
  set(o.range);
};
// The cells of a grid, darker with more records; a rectangle from corner to corner, by pointer or by keys.
export const cells = (box, o) => {
  const [wide, up] = o.axes, n = up.n, m = { l: 84, r: 10, t: 24, b: 36 }, tall = clamp(48 * n, 144, 340), height = tall + m.t + m.b, [svg, width] = frame(box, height, tell('cells'), 'group'), room = width - m.l - m.r, w = room / wide.n, t = tall / n;
  const isDown = up.kind === 'categories', row = j => isDown ? j : n - 1 - j, x = i => m.l + w * i, y = j => m.t + t * j, top = max(1e-9, most(o.values)), place = k => [floor(k / n), row(k % n)];
  const canvas = h('canvas', { width: wide.n, height: n }), ink = canvas.getContext('2d');
  ink.fillStyle = getComputedStyle(box).getPropertyValue('--est');
  o.values.forEach((v, k) => { ink.globalAlpha = 0.04 + 0.5 * clamp(v / top, 0, 1); ink.fillRect(...place(k), 1, 1); });
  svg.append(s('image', { href: canvas.toDataURL(), x: m.l, y: m.t, width: room, height: tall, preserveAspectRatio: 'none', class: 'cells' }));
  across(svg, x, wide, width, height, m);
  for (const [j, name] of ticks(up, 3 * tall)) svg.append(text(m.l - 8, y(isDown ? j : n - j) + 4, name.slice(0, 11), 'end'));
  if (w > 38 && t > 16) o.values.forEach((v, k) => { const [i, j] = place(k); svg.append(text(x(i + 0.5), y(j + 0.5) + 4, count(v), '', 'ink')); });
  svg.append(text(m.l - 8, 14, up.name.slice(0, 11), 'end'));
  let rect;
  const shade = area(0, 0, 0, 0, 'shade lp'), hit = area(m.l, m.t, room, tall, 'cross still'), bound = (i, j) => [clamp(i, 0, wide.n - 1), clamp(j, 0, n - 1)];
  const down = row(1) - row(0), grips = [0, 1].map(k => slider(s('g', { k: 'corner' + k }, area(-12, -12, 24, 24, 'hit'), area(-6, -6, 12, 12, 'grip2', 4)), `${k ? 'Last' : 'First'} corner of the rectangle`, [0, o.values.length - 1], { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -down], ArrowDown: [0, down], PageUp: [10, 0], PageDown: [-10, 0] },
    d => { const to = rect[1 - k]; set([bound(...d.map((v, i) => (k ? max : min)(rect[k][i] + v, to[i]))), to]); o.end(rect); }));
  const set = ([p, q]) => {
    rect = [min, max].map(end => p.map((v, i) => end(v, q[i])));
    const [[a, c], [b, d]] = rect, from = min(row(c), row(d));
    attributes(shade, { x: x(a), y: y(from), width: x(b + 1) - x(a), height: t * (d - c + 1) });
    grips.forEach((g, k) => valued(moved(g, x(k ? b + 1 : a), y(from + (k === +isDown) * (d - c + 1))), rect[k][0] * n + rect[k][1], o.names(rect[k])));
  };
  const cell = e => bound(binAt(wide.n, box, e, m.l, room), row(floor((within(box, e)[1] - m.t) / t)));
  drag(hit, (e, start) => set([cell(start), cell(e)]), () => o.end(rect));
  svg.append(shade, hit, ...grips);
  set(o.rect);
};
// Values with their band; simulated outcomes, a second release, a range to brush, or a shape to draw.
export const histogram = (box, o) => {
  const height = box.clientWidth < 480 ? 250 : o.height || 290, m = { l: 54, r: 10, t: 12, b: 36 }, [svg, width] = frame(box, height, o.label, 'group');
  const n = o.values.length, room = width - m.l - m.r, all = [o.values, ...(o.draws || []), ...(o.band || []), ...(o.other ? [o.other] : [])];
  const lo = o.draw ? 0 : min(0, ...all.map(least)), top = o.top || max(1e-9, ...all.map(most)) * 1.06;
  const x = i => m.l + room * i / n, y = v => height - m.b - (height - m.t - m.b) * (v - lo) / (top - lo);
  upwards(svg, y, lo, top, width, m);
  across(svg, x, o.axis, width, height, m);
  const bars = o.axis.kind === 'categories' && n < room / 5, gap = bars && min(8, room / n / 8), own = curve(join(corners(o.values, x, y, room)), o.draws ? 'guess' : 'own');
  if (o.band && !bars) svg.append(band(...o.band, x, y, room));
  for (const one of o.draws || []) svg.append(drawn(one, x, y, room, o.draws));
  if (bars) o.values.forEach((v, i) => svg.append(area(x(i) + gap, min(y(v), y(0)), x(1) - x(0) - 2 * gap, abs(y(v) - y(0)), o.draws ? 'frame' : 'pole'), ...(o.band ? [rule(x(i + 0.5), x(i + 0.5), y(o.band[0][i]), y(o.band[1][i]), 'whisker')] : [])));
  if (o.other) svg.append(curve(join(corners(o.other, x, y, room)), 'other'));
  if (!bars || o.draw) svg.append(own);
  if (!o.draw) return o.range && brush(box, svg, { n, left: m.l, right: width - m.r, top: m.t, bottom: height - m.b, ...o });
  const hit = area(m.l, m.t, room, height - m.t - m.b, 'cross still');
  let last = null;
  drag(hit, e => {
    const i = binAt(n, box, e, m.l, room), v = clamp((height - m.b - within(box, e)[1]) / (height - m.t - m.b) * top, 0, top), [j, w] = last || [i, v], d = max(1, abs(i - j));
    for (let k = 0; k <= d; k++) o.values[round(j + (i - j) * k / d)] = w + (v - w) * k / d;
    last = [i, v];
    own.setAttribute('d', join(corners(o.values, x, y, room)));
  }, () => { last = null; o.draw(); });
  svg.append(hit);
};
// What each bin is off, alone and magnified.
export const strip = (box, o) => {
  const height = 90, m = { l: 54, r: 10 }, [svg, width] = frame(box, height, o.label), off = list => list.map((v, i) => v - o.values[i]);
  const draws = o.draws.map(off), ends = o.band?.map(off), top = max(1e-9, ...[...draws, ...(ends || [])].map(one => max(most(one), -least(one))));
  const room = width - m.l - m.r, x = i => m.l + room * i / o.values.length, y = v => height / 2 - (height / 2 - 8) * v / top;
  if (ends) svg.append(band(...ends, x, y, room, 'soft'));
  svg.append(rule(m.l, width - m.r, y(0), y(0), 'l2'), ...[top, 0, -top].map(v => text(m.l - 8, y(v) + 4, (v > 0 ? '+' : '') + rough(v), 'end')), ...draws.map(one => drawn(one, x, y, room, draws)));
};
// Small pictures on one scale.
export const multiples = (box, o) => {
  const w = 150, t = 86, top = 1.05 * max(1e-9, ...o.draws.map(most)), lo = min(0, ...o.draws.map(least)), y = v => t - 3 - (t - 6) * (v - lo) / (top - lo);
  box.replaceChildren(h('div.multi', o.draws.map((one, i) => {
    const x = k => w * k / one.length, svg = s('svg', { viewBox: `0 0 ${w} ${t}`, role: 'img', aria: o.names ? o.names(i) : `simulated release ${i + 1} of ${o.draws.length}` }, o.band && band(...o.band, x, y, w, 'soft'), rule(0, w, y(0), y(0), 'l2'), curve(lines(one, x, y, w), 'draw'));
    return o.pick ? h('button.small', { onclick: () => o.pick(i), k: 'multi' + i, 'aria-pressed': String(i === o.chosen) }, svg, h('span', o.names(i))) : svg;
  })));
};

// Between two points of a curve on logarithmic scales; beyond its ends, nothing.
export const between = (points, at) => {
  const i = points?.findIndex(p => p[0] >= at * 0.999) ?? -1;
  if (i < 0 || (i === 0 && points[0][0] > at * 1.001)) return NaN;
  if (i === 0) return points[0][1];
  const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
  return y0 * (y1 / y0) ** (log(at / x0) / log(x1 / x0));
};
// The first place where another curve comes below the plan's, and stays there.
export const crossing = (curves, own) => {
  const mine = curves[own] || [];
  for (let i = 1; i < mine.length; i++) for (const name in curves) {
    const gaps = mine.map(([e, v]) => log(between(curves[name], e) / v)), [a, b] = [gaps[i - 1], gaps[i]];
    if (name !== own && a > 0.02 && gaps.slice(i).every(g => g < -0.02)) return { name, at: mine[i - 1][0] * (mine[i][0] / mine[i - 1][0]) ** (a / (a - b)) };
  }
};
export const errors = (box, o) => {
  const height = box.clientWidth < 480 ? 280 : 330, m = { l: 54, r: 78, t: 20, b: 40 }, [svg, width] = frame(box, height, o.label, 'group'), own = o.curves[o.own] || [], [e0, e1] = o.ends;
  const inside = e => e >= e0 * 0.999 && e <= e1 * 1.001, at = (p, e) => between(p, e) / (o.ratio ? between(own, e) : 1);
  const near = n => between(o.curves[n], o.epsilon) || Infinity, names = [o.own, ...keysOf(o.curves).filter(n => n !== o.own).sort((a, b) => near(a) - near(b))].filter(n => o.curves[n]?.length).slice(0, 6);
  const paths = names.map(n => [n, o.curves[n].map(p => [p[0], at(o.curves[n], p[0])]).filter(p => inside(p[0]) && p[1] > 0)]).filter(p => p[1].length);
  const ys = [...paths.flatMap(([, p]) => p.map(q => q[1])), ...(o.ratio ? [1] : o.error > 0 ? [o.error] : [])];
  if (!paths.length) return;
  const y0 = least(ys) / 1.15, y1 = most(ys) * 1.15, x = e => m.l + (width - m.l - m.r) * log(e / e0) / log(e1 / e0), y = v => height - m.b - (height - m.t - m.b) * log(clamp(v, y0, y1) / y0) / log(y1 / y0);
  if (o.left < e1) { const from = x(max(o.left, e0)), wide = x(e1) - from; svg.append(area(from, m.t, wide, height - m.t - m.b, 'beyond'), text(width - m.r, m.t - 6, wide > 110 ? 'more than is left' : 'refused', 'end', 'tbad')); }
  const tens = by => times(14, p => by.map(f => f * 10 ** (p - 4))).flat(), inY = v => v >= y0 && v <= y1, wide = tens([1]).filter(inY).length > 3;
  for (const v of tens(o.ratio ? [1, 1.25, 1.5, 2, 3, 5, 7.5] : wide ? [1] : [1, 2, 5]).filter(inY)) svg.append(rule(m.l, width - m.r, y(v), y(v), o.ratio && v === 1 ? 'l2' : 'lg'), text(m.l - 8, y(v) + 4, o.ratio ? '×' + v : short(v), 'end'));
  for (const e of tens([1, 2, 5]).map(v => digits(v, 1)).filter(inside)) svg.append(rule(x(e), x(e), height - m.b, height - m.b + 4, 'l2'), text(x(e), height - m.b + 18, e));
  svg.append(text(width - m.r, height - 3, 'epsilon of the plan', 'end'));
  const labels = paths.map(([name, points], k) => {
    const ink = name === o.own ? 0 : 1 + (k - 1) % 5;
    svg.append(curve(join(points.map(([e, v]) => [x(e), y(v)])), 'line k' + ink));
    return [name, y(points.at(-1)[1]), ink];
  }).sort((a, b) => a[1] - b[1]);
  for (let turn = 0; turn < 20; turn++) for (let i = 1; i < labels.length; i++) { const d = (14 - labels[i][1] + labels[i - 1][1]) / 2; if (d > 0) { labels[i - 1][1] -= d; labels[i][1] += d; } }
  for (const [name, up, ink] of labels) svg.append(text(width - m.r + 7, up + 4, name, 'start', 'n' + ink));
  if (o.cross && inside(o.cross.at)) svg.append(spot(x(o.cross.at), y(at(own, o.cross.at)), 5, 'ring'));
  let now = o.epsilon;
  const guide = curve('', 'guide'), name = text(0, 0, 'your plan', 'end', 'n0');
  const dot = slider(s('g', { class: 'grab', k: 'dot' }, spot(0, 0, 14, 'hit'), spot(0, 0, 7, 'dot')), 'Epsilon of the plan', o.ends, { ArrowLeft: 1 / 1.05, ArrowDown: 1 / 1.05, ArrowRight: 1.05, ArrowUp: 1.05, PageDown: 0.5, PageUp: 2 }, f => o.move(now * f, true));
  const set = (epsilon, error) => {
    now = epsilon;
    const v = o.ratio ? 1 : error || between(own, epsilon), px = x(clamp(epsilon, e0, e1)), py = y(v || y0), near = px - m.l < 90;
    valued(moved(dot, px, py), epsilon, spoken(epsilon, error));
    attributes(name, near ? { x: px + 11, y: py - 10, class: 'start n0' } : { x: px - 11, y: py + 20, class: 'end n0' });
    guide.setAttribute('d', `M${px} ${height - m.b}V${py}${o.ratio ? '' : 'H' + m.l}`);
  };
  drag(dot, e => o.move(e0 * (e1 / e0) ** along(box, e, m.l, width - m.l - m.r)), () => o.move(now, true));
  svg.append(guide, name, dot);
  set(o.epsilon, o.error);
  return set;
};

// The declared bins, to scale.
export const ruler = axis => {
  const wide = innerWidth > 640 ? 640 : 320, { n, edges: e } = axis, uneven = axis.kind === 'variable' && e?.length === n + 1 && !isLog(e), shown = min(n, 400), at = i => wide * (uneven ? (e[i] - e[0]) / (e[n] - e[0]) : i / n);
  const svg = s('svg', { viewBox: `-14 0 ${wide + 28} 42`, width: '100%', role: 'img', aria: `The ${n} declared bins, drawn to scale` }, area(0, 2, wide, 20, 'soft'));
  for (let k = 0; k <= shown; k++) { const p = at(round(k * n / shown)); svg.append(rule(p, p, 9, 22, 'le faint')); }
  let end = -20;
  for (const [i, name] of uneven ? e.map((v, i) => [i, short(v)]) : ticks(axis, wide)) {
    const p = uneven ? at(i) : wide * i / n, half = name.length * 3.5;
    svg.append(rule(p, p, 2, 22, 'le'));
    if (p - half > end && p + half < wide + 15) { svg.append(text(p, 38, name, 'tick')); end = p + half + 4; }
  }
  return svg;
};
export const spark = values => {
  const bars = values.length < 20, top = max(1e-9, most(values)), up = values.map(v => max(0, v));
  return s('svg', { width: 120, height: 26, viewBox: '0 0 120 26', 'aria-hidden': 'true' }, curve(bars ? up.map((v, i) => `M${3 + i * 114 / max(1, up.length - 1)} 25V${25 - 22 * v / top}`).join('') : lines(up, i => 120 * i / up.length, v => 24 - 22 * v / top, 120), bars ? 'draw fat' : 'draw'));
};
// Epsilon spent over time, against the limit.
export const spending = (box, o) => {
  const height = 260, m = { l: 40, r: 14, t: 18, b: 30 }, [svg, width] = frame(box, height, o.label), t0 = o.points[0][0], span = max(6e4, o.until - t0), t1 = t0 + 1.07 * span, last = o.points.at(-1)[1];
  const top = 1.1 * max(1e-9, ...o.limits.map(p => p[1]), last + o.plan), x = t => m.l + (width - m.l - m.r) * clamp((t - t0) / (t1 - t0), 0, 1), y = v => height - m.b - (height - m.t - m.b) * v / top;
  const stairs = points => points.map(([t, v], i) => `${i ? 'H' : 'M'}${x(t)}${i ? 'V' : ' '}${y(v)}`).join('');
  upwards(svg, y, 0, top, width, m, v => digits(v, 3));
  const parts = span < 6e5 ? 1 : max(2, floor(width / 140)), form = span < 2e8 ? { timeStyle: 'short' } : { dateStyle: 'medium' };
  for (let k = 0; k <= parts; k++) { const t = t0 + (t1 - t0) * k / parts; svg.append(text(x(t), height - 8, new Date(t).toLocaleString('en-GB', form), k ? k === parts ? 'end' : '' : 'start')); }
  if (o.limits.length) svg.append(curve(`${stairs(o.limits)}H${x(t1)}`, 'cap'), text(x(t1), y(o.limits.at(-1)[1]) - 6, 'limit', 'end', 'tbad'));
  const d = `${stairs([[t0, 0], ...o.points])}H${x(o.until)}`;
  svg.append(curve(`${d}V${y(0)}Z`, 'past'), curve(d, 'spent'), ...o.points.map(([t, v]) => spot(x(t), y(v), 3.5, 'stop')));
  if (o.plan) svg.append(curve(`M${x(o.until)} ${y(last)}V${y(last + o.plan)}H${x(t1)}`, 'guide'), spot(x(o.until), y(last + o.plan), 5, 'dot'), text(x(o.until) - 9, y(last + o.plan) - 8, 'this plan', 'end', 'n0'));
};
