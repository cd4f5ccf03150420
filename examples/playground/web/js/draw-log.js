// A log: every admitted request with its time, and the window that slides over them.

import { svg } from "./dom.js";

const LEFT = 14, RIGHT = 346, TOP = 44, FLOOR = 112;
const SHARE = 0.8; // of the width, for the window

export function log(state, at) {
  const width = (RIGHT - LEFT) * SHARE;
  const x = (t) => RIGHT - width * (at - t) / state.period_ms;
  const inside = state.log.filter((e) => at - e.at < state.period_ms);
  const count = inside.reduce((sum, e) => sum + e.units, 0);
  const shapes = [
    svg("rect", { class: "frame", x: RIGHT - width, width, y: TOP - 6, height: FLOOR - TOP + 12, rx: 4 }),
    svg("text", { x: RIGHT - width + 6, y: FLOOR + 1 }, `the last ${+(state.period_ms / 1000).toFixed(1)} s`),
  ];
  // Entries of one moment are stacked. The more there are, the closer they stand.
  const heights = new Map();
  const placed = state.log.map((e) => {
    const at = Math.round(x(e.at) / 7);
    const height = heights.get(at) ?? 0;
    heights.set(at, height + 1);
    return { e, height };
  });
  const step = Math.min(5.4, (FLOOR - 16 - TOP) / Math.max(1, ...heights.values()));
  for (const { e, height } of placed) {
    if (x(e.at) < LEFT) continue;
    shapes.push(svg("rect", {
      class: `bar${inside.includes(e) ? "" : " faded"}`, x: x(e.at) - 3, y: FLOOR - 16 - height * step, width: 6, height: step * 0.8, rx: Math.min(1.5, step / 4),
    }));
  }
  shapes.push(
    svg("text", { class: "big", x: LEFT, y: 30 }, String(count)),
    svg("text", { class: "strong", x: LEFT + 14 + 14 * String(count).length, y: 28 }, `of ${state.rate} in the log`));
  return { shapes, moving: state.log.some((e) => x(e.at) > LEFT) };
}
