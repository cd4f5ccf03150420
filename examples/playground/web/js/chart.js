// The charts of the fleet: what was admitted, and who decided, over the last minute.

import { byId, el, number, svg } from "./dom.js";

const SPAN = 60_000; // ms
const LEFT = 46;
const BOTTOM = 20;
const TOP = 12;

const LEGEND = [
  ["admitted", "admitted, by process"],
  ["limit", "limit"],
  ["offered", "offered"],
  ["naive", "count and push, same calls"],
];

byId("legend").append(...LEGEND.map(([name, what]) => el("li", { "data-series": name }, el("i", { class: name }), what)));

// bins sums samples up, to at least half a second and so many units that a bar is no noise. They are cut by the server's
// clock, so that a bin stays what it was when the chart moves.
function bins(samples, rate) {
  const width = Math.min(2000, Math.max(500, Math.ceil(20 / rate * 4) * 250));
  const out = [];
  for (const s of samples) {
    const at = Math.floor((s.at - 1) / width);
    let bin = out.at(-1);
    if (!bin || bin.at !== at) {
      bin = { at, end: s.at, span: 0, offered: 0, naive: 0, admitted: [], sources: [], redis: s.redis };
      out.push(bin);
    }
    bin.end = s.at;
    bin.span += s.span;
    bin.offered += s.offered;
    bin.naive += s.naive;
    if (s.redis !== "up") bin.redis = s.redis;
    s.admitted.forEach((n, i) => { bin.admitted[i] = (bin.admitted[i] ?? 0) + n; });
    s.sources.forEach((n, i) => { bin.sources[i] = (bin.sources[i] ?? 0) + n; });
  }
  if (out.length > 1 && out.at(-1).span < width / 2) out.pop(); // not full yet: it would jump
  return out;
}

const total = (list) => list.reduce((sum, n) => sum + n, 0);

export function draw(known) {
  const { state, samples, sources } = known;
  const latest = samples.at(-1)?.at ?? SPAN;
  const shown = bins(samples.filter((s) => s.at > latest - SPAN), state.settings.rate);
  const perSecond = (bin, n) => (bin.span > 0 ? n * 1000 / bin.span : 0);
  drawAdmitted(shown, latest, state, perSecond);
  drawSources(shown, latest, sources);
}

function frame(node) {
  const { width, height } = node.getBoundingClientRect();
  node.setAttribute("viewBox", `0 0 ${Math.max(width, 1)} ${Math.max(height, 1)}`);
  return { width, height, right: width - 4, bottom: height - BOTTOM };
}

function drawAdmitted(shown, latest, state, perSecond) {
  const node = byId("chart");
  const { width, right, bottom } = frame(node);
  if (width === 0) return;
  const { rate, naive } = state.settings;
  const admitted = shown.map((b) => perSecond(b, total(b.admitted)));
  const beside = naive ? shown.map((b) => perSecond(b, b.naive)) : [];
  // What was offered may be twenty times the limit: it is cut off, the rest never is.
  const top = nice(Math.max(rate * 1.6, ...admitted, ...beside.map((n) => Math.min(n, rate * 8))) * 1.05);
  const x = (at) => LEFT + (right - LEFT) * (1 - (latest - at) / SPAN);
  const y = (n) => bottom - (bottom - TOP) * Math.min(n, top) / top;
  const parts = [];
  for (const n of [0, top / 2, top]) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: right, y1: y(n), y2: y(n) }));
    parts.push(svg("text", { x: LEFT - 6, y: y(n) + 4, "text-anchor": "end" }, number(n)));
  }
  parts.push(...bands(shown, x, TOP, bottom, right), ...axis(x, bottom, latest));
  parts.push(...stack(shown, (b) => b.admitted.map((n) => perSecond(b, n)), x, y, (i, count) => ({ class: "share", fill: tint(i, count) })));
  const line = (values, attributes) => svg("path", { ...attributes, d: path(shown.map((b, i) => [x(b.end), y(values[i])])) });
  if (shown.length > 1) {
    parts.push(line(admitted, { class: "total" }));
    parts.push(line(shown.map((b) => perSecond(b, b.offered)), { class: "offered" }));
    if (naive) parts.push(line(beside, { class: "naive" }));
  }
  parts.push(svg("line", { class: "limit", x1: LEFT, x2: right, y1: y(rate), y2: y(rate) }));
  parts.push(svg("text", { class: "limit-label", x: LEFT + 8, y: y(rate) - 6 }, `limit ${number(rate)}/s`));
  node.replaceChildren(...parts);
  for (const item of byId("legend").children) if (item.dataset.series === "naive") item.hidden = !naive;
  describe(node, admitted, beside, rate);
}

function drawSources(shown, latest, names) {
  const node = byId("sources-chart");
  const { width, right, bottom } = frame(node);
  if (width === 0) return;
  const x = (at) => LEFT + (right - LEFT) * (1 - (latest - at) / SPAN);
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
  parts.push(...axis(x, bottom, latest), ...stack(shown, shares, x, y, (i) => ({ class: `s${i}` })));
  node.replaceChildren(...parts);
}

// stack is one area for each value of a bin, on top of each other.
function stack(shown, of, x, y, look) {
  if (shown.length < 2) return [];
  const values = shown.map(of);
  const count = Math.max(...values.map((v) => v.length));
  const base = shown.map(() => 0);
  const areas = [];
  for (let i = 0; i < count; i++) {
    const lower = shown.map((b, j) => [x(b.end), y(base[j])]);
    values.forEach((v, j) => { base[j] += v[i] ?? 0; });
    const upper = shown.map((b, j) => [x(b.end), y(base[j])]);
    areas.push(svg("path", { ...look(i, count), d: `${path(upper)}L${path(lower.reverse()).slice(1)}Z` }));
  }
  return areas;
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// tint is a process's colour.
export function tint(i, count) {
  const share = count > 1 ? 78 - 50 * i / (count - 1) : 70;
  return `color-mix(in oklab, var(--lease) ${share.toFixed(0)}%, var(--card))`;
}

// bands mark the time in which Redis was not well.
function bands(shown, x, top, bottom, right) {
  const out = [];
  for (let i = 0; i < shown.length; i++) {
    const state = shown[i].redis;
    if (state === "up") continue;
    const from = i > 0 ? shown[i - 1].end : shown[i].end - shown[i].span;
    while (i + 1 < shown.length && shown[i + 1].redis === state) i++;
    const left = Math.max(LEFT, x(from));
    out.push(svg("rect", { class: `band ${state}`, x: left, y: top, width: Math.max(0, x(shown[i].end) - left), height: bottom - top }));
    const [at, anchor] = right - left < 80 ? [right - 5, "end"] : [left + 5, "start"];
    out.push(svg("text", { class: `band-label ${state}`, x: at, y: top + 13, "text-anchor": anchor }, `Redis ${state}`));
  }
  return out;
}

function axis(x, bottom, latest) {
  return [60, 45, 30, 15, 0].map((s) => svg("text",
    { x: x(latest - s * 1000), y: bottom + 15, "text-anchor": s === 0 ? "end" : "middle" }, s === 0 ? "now" : `−${s} s`));
}

function nice(n) {
  const unit = 10 ** Math.floor(Math.log10(n));
  return [1, 1.2, 1.6, 2, 2.5, 3, 4, 5, 6, 8, 10].map((m) => m * unit).find((m) => m >= n) ?? n;
}

function describe(node, admitted, beside, rate) {
  const last = (values) => number(values.at(-1) ?? 0);
  node.setAttribute("aria-label", `Admitted over the last minute: ${last(admitted)} units a second now, limit ${number(rate)}`
    + (beside.length ? `, count and push ${last(beside)}` : ""));
}
