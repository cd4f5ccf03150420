// A bucket of tokens, which flow in, or of used units, which leak out. Both have the same arithmetic.

import { svg } from "./dom.js";

const TOP = 24, FLOOR = 108, LEFT = 34, RIGHT = 126, SLANT = 14;

export function bucket(state, at) {
  const perMs = state.rate / state.period_ms;
  const used = Math.max(0, state.used - (at - state.now) * perMs);
  const tokens = state.id === "token-bucket";
  const level = tokens ? state.burst - used : used;
  const share = Math.min(1, Math.max(0, level / state.burst));
  const y = FLOOR - (FLOOR - TOP - 4) * share;
  const inset = (atY) => SLANT * (atY - TOP) / (FLOOR - TOP);
  const kind = tokens ? "" : " leak";
  const shapes = [
    svg("path", { class: `water${kind}`, d: `M${LEFT + inset(y)} ${y}H${RIGHT - inset(y)}L${RIGHT - SLANT} ${FLOOR}H${LEFT + SLANT}Z` }),
    svg("path", { class: "vessel", d: `M${LEFT} ${TOP}L${LEFT + SLANT} ${FLOOR}H${RIGHT - SLANT}L${RIGHT} ${TOP}` }),
  ];
  if (state.burst <= 25) {
    for (let i = 1; i < state.burst; i++) {
      const tick = FLOOR - (FLOOR - TOP - 4) * i / state.burst;
      shapes.push(svg("line", { class: "axis", x1: LEFT + inset(tick), x2: LEFT + inset(tick) + 7, y1: tick, y2: tick }));
    }
  }
  const part = used % 1; // of the unit that is being refilled
  if (used > 0) {
    const fall = 1 - part;
    const x = (LEFT + RIGHT) / 2;
    shapes.push(tokens
      ? svg("circle", { class: `drop${kind}`, cx: x, cy: 6 + (Math.max(TOP, y) - 10) * fall, r: 4 })
      : svg("circle", { class: `drop${kind}`, cx: x, cy: FLOOR + 4 + 14 * fall, r: 4 }));
  }
  shapes.push(
    svg("text", { class: "big", x: 152, y: 62 }, tokens ? level.toFixed(1) : used.toFixed(1)),
    svg("text", { class: "strong", x: 152, y: 82 }, tokens ? `of ${state.burst} tokens` : `of ${state.burst} units used`),
    svg("text", { x: 152, y: 100 }, `${tokens ? "one more" : "one leaks out"} every ${each(state)}`));
  return { shapes, moving: used > 0 };
}

export function each(state) {
  const ms = state.period_ms / state.rate;
  return ms >= 1000 ? `${+(ms / 1000).toFixed(2)} s` : `${Math.round(ms)} ms`;
}
