// A bucket of tokens, which flow in, or of used units, which leak out. Both have the same arithmetic.

import { svg } from "./dom.js";

const TOP = 24, FLOOR = 108;
export const LEFT = 34, RIGHT = 126;
const SLANT = 14;

// vessel returns functions for the shapes of a bucket of a size in units, between two heights.
export function vessel(top, floor, size) {
  const y = (n) => floor - (floor - top - 4) * Math.min(1, Math.max(0, n / size));
  const inset = (atY) => SLANT * (atY - top) / (floor - top);
  return {
    y,
    water: (kind, from, to) => svg("path", {
      class: `water${kind}`, d: `M${LEFT + inset(y(to))} ${y(to)}H${RIGHT - inset(y(to))}L${RIGHT - inset(y(from))} ${y(from)}H${LEFT + inset(y(from))}Z`,
    }),
    edge: () => svg("path", { class: "vessel", d: `M${LEFT} ${top}L${LEFT + SLANT} ${floor}H${RIGHT - SLANT}L${RIGHT} ${top}` }),
    ticks() {
      if (size > 25) return [];
      return Array.from({ length: size - 1 }, (_, i) => {
        const tick = y(i + 1);
        return svg("line", { class: "axis", x1: LEFT + inset(tick), x2: LEFT + inset(tick) + 7, y1: tick, y2: tick });
      });
    },
  };
}

export function bucket(state, at) {
  const perMs = state.rate / state.period_ms;
  const used = Math.max(0, state.used - (at - state.now) * perMs);
  const tokens = state.id === "token-bucket";
  const level = tokens ? state.burst - used : used;
  const { y, water, edge, ticks } = vessel(TOP, FLOOR, state.burst);
  const kind = tokens ? "" : " leak";
  const shapes = [water(kind, 0, level), edge(), ...ticks()];
  const part = used % 1; // of the unit that is being refilled
  if (used > 0) {
    const fall = 1 - part;
    const x = (LEFT + RIGHT) / 2;
    shapes.push(tokens
      ? svg("circle", { class: `drop${kind}`, cx: x, cy: 6 + (Math.max(TOP, y(level)) - 10) * fall, r: 4 })
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
