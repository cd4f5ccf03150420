// The time line below each drawing, with the requests of the last seconds: a dot for an admitted request, a cross for a
// denied one.

import { svg } from "./dom.js";

export const SPAN = 10_000; // ms
const LEFT = 14, RIGHT = 346, Y = 134, APART = 9.5;

export function dots(state, at) {
  // A queued request is forwarded later. Until then it waits at the right.
  const shown = state.dots.map((dot) => ({ dot, when: dot.at + dot.delay_ms })).filter(({ when }) => at - when <= SPAN);
  shown.sort((a, b) => b.when - a.when);
  const shapes = [svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: Y, y2: Y })];
  let room = RIGHT + APART;
  for (const { dot, when } of shown) {
    // Requests of one moment stand side by side. Otherwise a burst would look like one request.
    room = Math.min(room - APART, RIGHT - (RIGHT - LEFT) * (at - Math.min(when, at)) / SPAN);
    if (room < LEFT) break;
    shapes.push(mark(dot, room, when > at));
  }
  return shapes;
}

export function mark(dot, x, waits = false, y = Y) {
  if (!dot.allowed) return svg("path", { class: "no", d: `M${x - 3.5} ${y - 3.5}l7 7m0 -7l-7 7` });
  return svg("circle", { class: waits ? "wait" : "yes", cx: x, cy: y, r: 4 });
}
