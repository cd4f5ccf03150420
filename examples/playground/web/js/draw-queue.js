// A queue: requests move to the left and leave at the rate.

import { svg } from "./dom.js";
import { each } from "./draw-bucket.js";

const EXIT = 40, RIGHT = 346, TOP = 62, MOST = 44;

export function queue(state, at) {
  const used = Math.max(0, state.used - (at - state.now) * state.rate / state.period_ms);
  const waiting = Math.ceil(used);
  const width = Math.min(MOST, (RIGHT - EXIT) / Math.max(state.burst, waiting)); // after a change to a smaller limit, requests stay in the queue
  const side = Math.max(1, Math.min(30, width - (width > 7 ? 4 : 1)));
  const shapes = [svg("path", { class: "vessel", d: `M${EXIT - 4} ${TOP - 12}V${TOP - 3}M${EXIT - 4} ${TOP + side + 3}V${TOP + side + 12}` })];
  for (let i = 0; i < state.burst; i++) {
    shapes.push(svg("rect", { class: "place", x: EXIT + i * width + 2, y: TOP, width: side, height: side, rx: 4 }));
  }
  const ahead = waiting - used; // how far the first request has left its place
  for (let i = 0; i < waiting; i++) {
    shapes.push(svg("rect", { class: "item", x: EXIT + (i - ahead) * width + 2, y: TOP, width: side, height: side, rx: 4, opacity: i === 0 ? 1 - ahead * 0.8 : 1 }));
  }
  shapes.push(
    svg("text", { class: "big", x: EXIT, y: 36 }, String(waiting)),
    svg("text", { class: "strong", x: EXIT + 22 + 10 * String(waiting).length, y: 34 }, `of ${state.burst} places taken`),
    svg("text", { x: EXIT, y: TOP + side + 22 }, `one leaves every ${each(state)}`));
  return { shapes, moving: used > 0 };
}
