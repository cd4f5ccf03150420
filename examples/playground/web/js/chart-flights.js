// The chart of the calls in flight over the last minute: one area for each process, and above them the calls that the
// guarantee does not count.

import { byId, number, svg } from "./dom.js";
import { axis, bands, frame, LEFT, runs, stack, steps, time, tint, TOP } from "./chart.js";

const NOT_COUNTED = ["outlived", "alone"];

export function draw(samples, limit) {
  const node = byId("flights-chart");
  const { width, right, bottom } = frame(node);
  if (width === 0) return;
  const when = time(samples);
  const shown = samples.filter((s) => s.at > when.latest - when.span).map((s) => ({ ...s, start: s.at - s.span, end: s.at }));
  const count = Math.max(0, ...shown.map((s) => s.shared.length));
  const values = (s) => [...Array.from({ length: count }, (_, i) => s.shared[i] ?? 0), ...NOT_COUNTED.map((kind) => s[kind])];
  const sum = (s) => values(s).reduce((a, b) => a + b, 0);
  const top = Math.max(limit, ...shown.map((s) => Math.max(s.limit, sum(s)))) * 1.2;
  const x = when.x(right);
  const y = (n) => bottom - (bottom - TOP) * n / top;
  const parts = [];
  for (const n of [0, limit]) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: right, y1: y(n), y2: y(n) }));
    parts.push(svg("text", { x: LEFT - 6, y: y(n) + 4, "text-anchor": "end" }, number(n)));
  }
  const all = runs(shown);
  parts.push(...bands(all, x, TOP, bottom, right), ...axis(x, bottom, when));
  parts.push(...stack(all, values, x, y, (i) => (i < count ? { class: "share", fill: tint(i, count) } : { class: NOT_COUNTED[i - count] })));
  parts.push(svg("path", { class: "limit", d: all.map((run) => steps(run, x, y, (s) => s.limit)).join("") }),
    svg("text", { class: "limit-label", x: right - 5, y: y(limit) - 6, "text-anchor": "end" }, `limit ${number(limit)}`));
  node.replaceChildren(...parts);
  node.setAttribute("aria-label", `Calls in flight: ${shown.length > 0 ? sum(shown.at(-1)) : 0} now, limit ${number(limit)}`);
}
