// The time line below each drawing, with the requests of the last seconds: a dot for an admitted request, a cross for a
// denied one. A card with classes has a line for each of them.

import { svg } from "./dom.js";

export const SPAN = 10_000; // ms
const LEFT = 14, RIGHT = 346, Y = 134, APART = 9.5;
const NAMED = 74, FIRST = 160, NEXT = 22; // of the lines of classes: the begin, and the heights

export function dots(state, at) {
  if (state.classes.length === 0) return line(state.dots, at, LEFT, Y);
  return state.classes.flatMap((c, i) => {
    const y = FIRST + i * NEXT;
    return [svg("text", { class: "strong", x: LEFT, y: y + 4 }, c.name), ...line(state.dots.filter((dot) => dot.class === c.name), at, NAMED, y)];
  });
}

function line(all, at, left, y) {
  // A queued request is forwarded later. Until then it waits at the right.
  const shown = all.map((dot) => ({ dot, when: dot.at + dot.delay_ms })).filter(({ when }) => at - when <= SPAN);
  shown.reverse().sort((a, b) => b.when - a.when);
  const shapes = [svg("line", { class: "axis", x1: left, x2: RIGHT, y1: y, y2: y })];
  let room = RIGHT + APART;
  for (const { dot, when } of shown) {
    // Requests of one moment stand side by side. Otherwise a burst would look like one request.
    room = Math.min(room - APART, RIGHT - (RIGHT - left) * (at - Math.min(when, at)) / SPAN);
    if (room < left) break;
    shapes.push(mark(dot, room, when > at, y));
  }
  return shapes;
}

export function mark(dot, x, waits, y) {
  if (!dot.allowed) return svg("path", { class: "no", d: `M${x - 3.5} ${y - 3.5}l7 7m0 -7l-7 7` });
  return svg("circle", { class: waits ? "wait" : "yes", cx: x, cy: y, r: 4 });
}
