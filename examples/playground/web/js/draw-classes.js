// A bucket of tokens with classes: each class leaves the tokens below its floor to others.

import { svg } from "./dom.js";
import { each, LEFT, RIGHT, vessel } from "./draw-bucket.js";

const TOP = 20, BOTTOM = 132, TEXT = 152;

export function reserve(state, at) {
  const used = Math.max(0, state.used - (at - state.now) * state.rate / state.period_ms);
  const level = Math.max(0, state.burst - used);
  const floors = state.classes.filter((c) => c.floor > 0);
  const highest = Math.max(0, ...floors.map((c) => c.floor));
  const { y, water, edge, ticks } = vessel(TOP, BOTTOM, state.burst);
  const shapes = [water(" reserve", 0, Math.min(level, highest))];
  if (level > highest) shapes.push(water("", highest, level));
  shapes.push(edge(), ...ticks());
  if (used > 0) {
    const fall = 1 - used % 1; // of the token that is being refilled
    shapes.push(svg("circle", { class: `drop${level < highest ? " reserve" : ""}`, cx: (LEFT + RIGHT) / 2, cy: 6 + (y(level) - 10) * fall, r: 4 }));
  }
  shapes.push(
    svg("text", { x: TEXT, y: 36 },
      svg("tspan", { class: "big" }, level.toFixed(1)),
      svg("tspan", { class: "strong", dx: 10, dy: -2 }, `of ${state.burst} tokens`)),
    svg("text", { x: TEXT, y: 56 }, `one more every ${each(state)}`));
  for (const c of floors) {
    shapes.push(
      svg("line", { class: "floor", x1: LEFT - 12, x2: TEXT - 6, y1: y(c.floor), y2: y(c.floor) }),
      svg("text", { class: "strong", x: TEXT, y: y(c.floor) + 5 }, `floor of ${c.name}: ${c.floor}`));
  }
  if (highest > 0) shapes.push(svg("text", { x: TEXT, y: y(highest) + 22 }, "below it: critical only"));
  return { shapes, moving: used > 0 };
}
