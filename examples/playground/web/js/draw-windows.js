// Windows: the last one and this one as bars against the limit, and the current time. A sliding window is drawn over
// both. It counts the part of the last window that it still covers.

import { svg } from "./dom.js";

const LEFT = 14, RIGHT = 346, FLOOR = 112, TOP = 44;
const EACH = (RIGHT - LEFT) / 2;

// counts returns the counts at a time, from those in the server's last state.
function counts(state, at) {
  let { start, cur, prev } = state.window;
  const passed = Math.floor((at - start) / state.period_ms);
  if (passed >= 1) {
    prev = passed === 1 ? cur : 0;
    cur = 0;
    start += passed * state.period_ms;
  }
  return { start, cur, prev, share: Math.max(0, at - start) / state.period_ms };
}

function frame(state, { prev, cur, share }, faded) {
  const y = (n) => FLOOR - (FLOOR - TOP) * Math.min(n, state.rate * 1.25) / (state.rate * 1.25);
  const now = LEFT + EACH * (1 + share);
  const bar = (n, x, fade) => svg("rect", { class: `bar${fade ? " faded" : ""}`, x: x + 3, width: EACH - 6, y: y(n), height: FLOOR - y(n), rx: 3 });
  return {
    now, y,
    shapes: [
      bar(prev, LEFT, faded), bar(cur, LEFT + EACH, false),
      svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: FLOOR, y2: FLOOR }),
      svg("line", { class: "axis", x1: LEFT + EACH, x2: LEFT + EACH, y1: TOP - 4, y2: FLOOR + 5 }),
      svg("line", { class: "cap", x1: LEFT, x2: RIGHT, y1: y(state.rate), y2: y(state.rate) }),
      svg("text", { x: RIGHT, y: y(state.rate) - 4, "text-anchor": "end" }, `limit ${state.rate}`),
    ],
  };
}

export function fixed(state, at) {
  const c = counts(state, at);
  const { shapes, now, y } = frame(state, c, true);
  const left = (1 - c.share) * state.period_ms / 1000;
  shapes.push(
    svg("line", { class: "now", x1: now, x2: now, y1: y(state.rate), y2: FLOOR + 6 }),
    svg("text", { class: "big", x: LEFT, y: 30 }, String(c.cur)),
    svg("text", { class: "strong", x: LEFT + 14 + 14 * String(c.cur).length, y: 28 }, `of ${state.rate} in this window`),
    svg("text", { x: RIGHT, y: 28, "text-anchor": "end" }, `${left.toFixed(1)} s to go`));
  return { shapes, moving: c.cur + c.prev > 0 };
}

export function sliding(state, at) {
  const c = counts(state, at);
  const { shapes, now, y } = frame(state, c, true);
  const part = c.prev * (1 - c.share);
  shapes.push(
    svg("rect", { class: "frame", x: now - EACH, width: EACH, y: y(state.rate), height: FLOOR + 6 - y(state.rate), rx: 4 }),
    svg("text", { class: "big", x: LEFT, y: 30 }, (c.cur + part).toFixed(1)),
    svg("text", { class: "strong", x: LEFT + 76, y: 28 }, `= ${c.cur} + ${c.prev} × ${(1 - c.share).toFixed(2)}`),
    svg("text", { x: RIGHT, y: 28, "text-anchor": "end" }, `of ${state.rate}`));
  return { shapes, moving: c.cur + c.prev > 0 };
}
