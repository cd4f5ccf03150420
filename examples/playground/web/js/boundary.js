// The burst at the boundary: a fixed and a sliding window under the same attack.

import { byId, el, set, stillness, svg, text } from "./dom.js";
import { ask, now } from "./net.js";
import { mark } from "./draw-dots.js";

const button = byId("attack");
const last = byId("boundary-last");
const lanes = [];

// A disabled button keeps the focus. Otherwise keyboard users would have to begin at the
// top again.
button.addEventListener("click", () => { if (!underWay()) ask("POST", "api/boundary"); });

let timer = 0;
let state = null;

const underWay = () => state?.phase === "waiting" || state?.phase === "running";

export function update(told) {
  state = told;
  set(button, { "aria-disabled": String(underWay()) });
  if (lanes.length === 0) {
    for (const lane of state.lanes) {
      const result = el("b");
      const drawing = svg("svg", { role: "img", class: "drawing" });
      lanes.push({ result, drawing });
      byId("lanes").append(el("div", { class: "lane", "data-lane": lane.name }, el("h3", {}, lane.name, result), drawing));
    }
  }
  text(last, summary(state));
  state.lanes.forEach((lane, i) => {
    const over = lane.worst > state.rate;
    text(lanes[i].result, lane.dots.length ? `${lane.worst} in one window's time` : "");
    lanes[i].result.className = over ? "bad" : "good";
    set(lanes[i].drawing, { "aria-label": `${lane.name}: ${lane.admitted} of ${lane.dots.length} admitted, at most ${lane.worst} within ${state.window_ms / 1000} s` });
  });
  tick();
}

function summary(s) {
  switch (s.phase) {
    case "waiting": return "Waiting for the end of a window …";
    case "running": return "The attack is running.";
    case "done": {
      const [fixed, sliding] = s.lanes;
      if (fixed.worst <= s.rate) return "The bursts were late and missed the border, because the machine was busy. Run the attack again.";
      return `The fixed window admitted ${fixed.worst} within ${s.window_ms / 1000} s, ${factor(fixed.worst / s.rate)} the limit, `
        + `because two windows met. The sliding window admitted ${sliding.worst}, because the window before still counted.`;
    }
    default: return "Each burst alone is within the limit. Both together are double the limit, in less than a second.";
  }
}

const factor = (n) => (n === 2 ? "twice" : `${n.toFixed(1)} times`);

// tick draws, and repeats while the attack runs.
function tick() {
  clearTimeout(timer);
  if (document.hidden) return;
  state.lanes.forEach((lane, i) => draw(lanes[i].drawing, lane));
  if (underWay()) timer = setTimeout(tick, stillness.matches ? 500 : 50);
}

document.addEventListener("visibilitychange", () => state && tick());
addEventListener("resize", () => state && tick());

const ZOOM = 900; // ms on each side of the border, around the attack

function draw(node, lane) {
  const width = node.clientWidth || 400, height = 150;
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const middle = width / 2, floor = 108;
  const x = (t) => middle + (t - state.border) / ZOOM * (width / 2 - 16);
  const shapes = [
    svg("line", { class: "axis", x1: 12, x2: width - 12, y1: floor, y2: floor }),
    svg("line", { class: "cap", x1: middle, x2: middle, y1: 18, y2: floor + 8 }),
    svg("text", { x: middle, y: 13, "text-anchor": "middle" }, "a window ends, the next begins"),
    svg("text", { x: 14, y: height - 10 }, "−0.9 s"),
    svg("text", { x: width - 14, y: height - 10, "text-anchor": "end" }, "+0.9 s"),
  ];
  const sides = [[], []];
  for (const dot of lane.dots) sides[dot.at < state.border ? 0 : 1].push(dot);
  sides.forEach((dots, side) => {
    dots.forEach((dot, i) => shapes.push(mark(dot, x(dot.at), false, floor - 10 - i * 7.2)));
    if (dots.length) {
      const admitted = dots.filter((d) => d.allowed).length;
      shapes.push(svg("text", { class: "strong", x: side ? width - 14 : 14, y: 42, "text-anchor": side ? "end" : "start" }, `${admitted} of ${dots.length}`));
    }
  });
  const at = now();
  if (underWay() && x(at) > 12 && x(at) < width - 12) shapes.push(svg("line", { class: "now", x1: x(at), x2: x(at), y1: 22, y2: floor }));
  node.replaceChildren(...shapes);
}
