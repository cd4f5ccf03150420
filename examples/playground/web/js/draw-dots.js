// The line of time below each drawing: requests of the last seconds, a dot for an admitted one, a cross for a denied one.

import { svg } from "./dom.js";

export const SPAN = 10_000; // ms
const LEFT = 14, RIGHT = 346, Y = 134;

export function dots(state, at) {
  const x = (t) => RIGHT - (RIGHT - LEFT) * (at - t) / SPAN;
  const shapes = [svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: Y, y2: Y })];
  for (const dot of state.dots) {
    // One that was queued is forwarded later, and until then it waits at the right.
    const when = dot.at + dot.delay_ms;
    if (at - when > SPAN) continue;
    shapes.push(mark(dot, x(Math.min(when, at)), when > at));
  }
  return shapes;
}

export function mark(dot, x, waits = false, y = Y) {
  if (!dot.allowed) return svg("path", { class: "no", d: `M${x - 3.5} ${y - 3.5}l7 7m0 -7l-7 7` });
  return svg("circle", { class: waits ? "wait" : "yes", cx: x, cy: y, r: 4 });
}
