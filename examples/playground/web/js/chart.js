// The charts of the fleet: the admitted units and the sources of decisions over the last minute.

import { byId, el, number, svg } from "./dom.js";

const SPAN = 60_000; // ms, of a full chart
const LEAST = 15_000; // ms, of a chart that has little to show
export const LEFT = 46;
const BOTTOM = 20;
export const TOP = 30; // for the labels above the chart
const GAP = 300; // ms between two bins: with a larger gap, the load has stood still

const LEGEND = [
  ["admitted", "admitted, by process"],
  ["limit", "limit"],
  ["offered", "offered"],
  ["naive", "count and push, same calls"],
];

byId("legend").append(...LEGEND.map(([name, what]) => el("li", { "data-series": name }, el("i", { class: name }), what)));

// bins sums samples up to bins of at least half a second, with enough units for a bar that is not noise. Bins are
// aligned to the server's clock, so that a bin does not change when the chart moves.
function bins(samples, rate) {
  const width = Math.min(2000, Math.max(500, Math.ceil(20 / rate * 4) * 250));
  const out = [];
  for (const s of samples) {
    const at = Math.floor((s.at - 1) / width);
    let bin = out.at(-1);
    if (!bin || bin.at !== at || s.at - s.span - bin.end > GAP) {
      bin = { at, start: s.at - s.span, span: 0, offered: 0, naive: 0, admitted: [], sources: [], redis: s.redis };
      out.push(bin);
    }
    bin.end = s.at;
    bin.rate = s.rate;
    bin.burst = s.burst;
    bin.span += s.span;
    bin.offered += s.offered;
    bin.naive += s.naive;
    if (s.redis !== "up") bin.redis = s.redis;
    s.admitted.forEach((n, i) => { bin.admitted[i] = (bin.admitted[i] ?? 0) + n; });
    s.sources.forEach((n, i) => { bin.sources[i] = (bin.sources[i] ?? 0) + n; });
  }
  if (out.length > 1 && out.at(-1).span < width / 2) out.pop(); // not full yet, so it would jump
  return out;
}

// runs returns the runs of bins between which the load did not stand still.
export function runs(shown) {
  const out = [];
  for (const bin of shown) {
    const last = out.at(-1)?.at(-1);
    if (last && bin.start - last.end <= GAP) out.at(-1).push(bin);
    else out.push([bin]);
  }
  return out;
}

// points returns the points of a line over a run: the value of each bin at its end, and of the first bin also at its
// start.
const points = (run, x, y, of) => [[x(run[0].start), y(of(run[0]))], ...run.map((bin) => [x(bin.end), y(of(bin))])];

const total = (list) => list.reduce((sum, n) => sum + n, 0);

// time returns the times that a chart shows: all samples, but at most the last minute. A chart with few samples is wider, so
// that it is never nearly empty.
export function time(samples) {
  const latest = samples.at(-1)?.at ?? LEAST;
  const oldest = samples.length > 0 ? samples[0].at - samples[0].span : 0;
  const span = Math.min(SPAN, Math.max(LEAST, latest - oldest));
  return { latest, span, x: (right) => (at) => Math.max(LEFT, LEFT + (right - LEFT) * (1 - (latest - at) / span)) };
}

export function draw(known) {
  const { state, samples, sources } = known;
  const when = time(samples);
  const shown = bins(samples.filter((s) => s.at > when.latest - when.span), state.settings.rate);
  const perSecond = (bin, n) => (bin.span > 0 ? n * 1000 / bin.span : 0);
  drawAdmitted(shown, when, state, perSecond);
  drawSources(shown, when, sources);
}

export function frame(node) {
  const { width, height } = node.getBoundingClientRect();
  node.setAttribute("viewBox", `0 0 ${Math.max(width, 1)} ${Math.max(height, 1)}`);
  return { width, height, right: width - 4, bottom: height - BOTTOM };
}

function drawAdmitted(shown, when, state, perSecond) {
  const node = byId("chart");
  const { width, right, bottom } = frame(node);
  if (width === 0) return;
  const { rate, naive } = state.settings;
  const of = {
    admitted: (b) => perSecond(b, total(b.admitted)),
    offered: (b) => perSecond(b, b.offered),
    naive: (b) => perSecond(b, b.naive),
  };
  // Admitted units are never cut off. The offered load may be twenty times the limit, and count-and-push may admit the
  // limit once for each process. A value that does not fit gets a label.
  const most = Math.max(rate, ...shown.map((b) => b.rate));
  const top = nice(Math.max(most * 1.6, ...shown.map(of.admitted), ...(naive ? shown.map((b) => Math.min(of.naive(b), most * 8)) : [])) * 1.05);
  const x = when.x(right);
  const y = (n) => bottom - (bottom - TOP) * Math.min(n, top) / top;
  const parts = [];
  for (const n of [0, top / 2, top]) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: right, y1: y(n), y2: y(n) }));
    parts.push(svg("text", { x: LEFT - 6, y: y(n) + 4, "text-anchor": "end" }, number(n)));
  }
  const all = runs(shown);
  parts.push(...bands(all, x, TOP, bottom, right), ...axis(x, bottom, when));
  parts.push(...stack(all, (b) => b.admitted.map((n) => perSecond(b, n)), x, y, (i, count) => ({ class: "share", fill: tint(i, count) })));
  const line = (value, attributes) => svg("path", { ...attributes, d: all.map((run) => path(points(run, x, y, value))).join("") });
  if (shown.length > 0) {
    parts.push(line(of.admitted, { class: "total" }), line(of.offered, { class: "offered" }));
    if (naive) parts.push(line(of.naive, { class: "naive" }));
    parts.push(svg("path", { class: "limit", d: all.map((run) => steps(run, x, y, (b) => b.rate)).join("") }));
    // Beside the oldest bin with the current limit.
    const since = shown.findLast((b) => b.rate !== rate)?.end ?? shown[0].start;
    const at = Math.max(LEFT, x(since));
    parts.push(right - at < 90
      ? svg("text", { class: "limit-label", x: right - 5, y: y(rate) - 6, "text-anchor": "end" }, `limit ${number(rate)}/s`)
      : svg("text", { class: "limit-label", x: at + 8, y: y(rate) - 6 }, `limit ${number(rate)}/s`));
    parts.push(...peaks(shown, of.admitted, x, y, right));
    const beyond = [["offered", "offered"], ...(naive ? [["naive", "count and push"]] : [])];
    beyond.forEach(([name, what], i) => {
      const bin = shown.findLast((b) => of[name](b) > top * 1.05); // ignores noise at the edge
      if (!bin) return;
      parts.push(svg("text", { class: `beyond beyond-${name}`, x: Math.max(x(bin.end) - 5, LEFT + 150), y: TOP + 14 + i * 15, "text-anchor": "end" },
        `${what} ${number(of[name](bin))}/s ↑`));
    });
  }
  node.replaceChildren(...parts);
  for (const item of byId("legend").children) if (item.dataset.series === "naive") item.hidden = !naive;
  byId("naive-about").hidden = !naive;
  describe(node, shown.map(of.admitted), naive ? shown.map(of.naive) : [], rate);
}

const NOISE = 0.1; // of the rate
const WIDE = 88, HIGH = 15; // of a label

// peaks labels where the fleet admitted more than the rate for a moment: the burst of the limit allows that.
function peaks(shown, admitted, x, y, right) {
  const labels = [];
  let peak = null;
  for (const bin of [...shown, null]) {
    const above = bin ? admitted(bin) - bin.rate : 0;
    if (above > bin?.rate * NOISE) {
      peak ??= { units: 0, height: 0 };
      peak.units += above * bin.span / 1000;
      if (admitted(bin) > peak.height) Object.assign(peak, { height: admitted(bin), at: bin.end, burst: bin.burst });
      continue;
    }
    if (peak && peak.units > peak.burst / 10) {
      const at = Math.min(Math.max(x(peak.at), LEFT + WIDE / 2), right - WIDE / 2), top = y(peak.height) - 7;
      if (!labels.some((l) => Math.abs(l.at - at) < WIDE && Math.abs(l.top - top) < HIGH)) labels.push({ ...peak, at, top });
    }
    peak = null;
  }
  return labels.map((l) => svg("text", { class: "peak", x: l.at, y: l.top, "text-anchor": "middle" }, `burst of ${number(l.burst)}`,
    svg("title", {}, `${number(l.units)} units above the rate. The burst allows ${number(l.burst)}.`)));
}

// steps returns the path of the limit over a run.
export function steps(run, x, y, limit) {
  let d = `M${x(run[0].start).toFixed(1)} ${y(limit(run[0])).toFixed(1)}`;
  for (const bin of run) d += `V${y(limit(bin)).toFixed(1)}H${x(bin.end).toFixed(1)}`;
  return d;
}

function drawSources(shown, when, names) {
  const node = byId("sources-chart");
  const { width, right, bottom } = frame(node);
  if (width === 0) return;
  const x = when.x(right);
  const y = (share) => bottom - (bottom - 4) * share;
  const shares = (b) => {
    const all = total(b.sources);
    return names.map((_, i) => (all > 0 ? (b.sources[i] ?? 0) / all : 0));
  };
  const parts = [];
  for (const share of [0, 1]) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: right, y1: y(share), y2: y(share) }));
    parts.push(svg("text", { x: LEFT - 6, y: y(share) + (share ? 9 : 4), "text-anchor": "end" }, `${share * 100} %`));
  }
  parts.push(...axis(x, bottom, when), ...stack(runs(shown), shares, x, y, (i) => ({ class: `s${i}` })));
  node.replaceChildren(...parts);
}

// stack returns one area for each value of a bin, on top of each other.
export function stack(all, of, x, y, look) {
  const count = Math.max(0, ...all.flat().map((bin) => of(bin).length));
  const below = (bin, i) => of(bin).slice(0, i).reduce((sum, n) => sum + (n ?? 0), 0);
  const areas = [];
  for (let i = 0; i < count; i++) {
    const d = all.map((run) => {
      const lower = points(run, x, y, (bin) => below(bin, i)), upper = points(run, x, y, (bin) => below(bin, i + 1));
      return `${path(upper)}L${path(lower.reverse()).slice(1)}Z`;
    });
    areas.push(svg("path", { ...look(i, count), d: d.join("") }));
  }
  return areas;
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// tint returns the colour of a process.
export function tint(i, count) {
  const share = count > 1 ? 78 - 50 * i / (count - 1) : 70;
  return `color-mix(in oklab, var(--lease) ${share.toFixed(0)}%, var(--card))`;
}

// bands marks the times in which Redis had a fault. Their names are above the chart if there is room.
export function bands(all, x, top, bottom, right) {
  const out = [];
  let free = LEFT;
  for (const run of all) {
    for (let i = 0; i < run.length; i++) {
      const state = run[i].redis;
      if (state === "up") continue;
      const from = i > 0 ? run[i - 1].end : run[i].start;
      while (i + 1 < run.length && run[i + 1].redis === state) i++;
      const left = Math.max(LEFT, x(from));
      out.push(svg("rect", { class: `band ${state}`, x: left, y: top - 20, width: Math.max(0, x(run[i].end) - left), height: bottom - top + 20 }));
      const name = `Redis ${state}`, wide = 7.2 * name.length;
      const at = Math.min(left + 5, right - wide);
      if (at < free) continue;
      free = at + wide + 8;
      out.push(svg("text", { class: `band-label ${state}`, x: at, y: top - 7 }, name));
    }
  }
  return out;
}

export function axis(x, bottom, { latest, span }) {
  const step = span > 30_000 ? 15 : 5; // s
  return Array.from({ length: Math.floor(span / 1000 / step) + 1 }, (_, i) => i * step).map((s) => svg("text",
    { x: x(latest - s * 1000), y: bottom + 15, "text-anchor": s === 0 ? "end" : "middle" }, s === 0 ? "now" : `−${s} s`));
}

export function nice(n) {
  const unit = 10 ** Math.floor(Math.log10(n));
  return [1, 1.2, 1.6, 2, 2.5, 3, 4, 5, 6, 8, 10].map((m) => m * unit).find((m) => m >= n) ?? n;
}

function describe(node, admitted, beside, rate) {
  const last = (values) => number(values.at(-1) ?? 0);
  node.setAttribute("aria-label", `Admitted: ${last(admitted)} units a second now, limit ${number(rate)}`
    + (beside.length ? `, count and push ${last(beside)}` : ""));
}
