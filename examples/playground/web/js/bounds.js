// Measured values beside their promised bounds.

import { el, number, set, svg, text } from "./dom.js";

const BOUNDS = { shared: "With Redis", alone: "Without Redis, last outage", naive: "Count and push", permits: "Running with a permit of Redis" };
const VERDICTS = { holds: "✓", broken: "✗", none: "" };

// showBounds shows bounds on a scale that ends at widest. If instead is set, it is shown for the reasons.
export function showBounds(list, bounds, widest, instead) {
  if (list.children.length !== bounds.length) {
    list.replaceChildren(...bounds.map(() => el("li", {},
      el("div", { class: "line" }, el("span"), el("b")),
      svg("svg", { "aria-hidden": "true" },
        svg("rect", { class: "track", x: 0, y: 1, width: "100%", height: 10, rx: 4 }),
        svg("rect", { class: "fill", x: 0, y: 1, height: 10, rx: 4 }),
        svg("line", { class: "mark", y1: 0, y2: 12 })),
      el("span", { class: "small" }))));
  }
  bounds.forEach((bound, i) => {
    const item = list.children[i];
    const [line, bar, why] = item.children;
    const share = (n) => `${(100 * n / widest).toFixed(2)}%`;
    item.className = `${bound.verdict} ${bound.name}`;
    item.dataset.bound = bound.name;
    text(line.children[0], BOUNDS[bound.name]);
    text(line.children[1], bound.verdict === "none"
      ? number(bound.measured)
      : `${number(bound.measured)} ${bound.verdict === "holds" ? "≤" : ">"} ${number(bound.allowed)} ${VERDICTS[bound.verdict]}`);
    bar.children[1].setAttribute("width", share(Math.min(widest, Math.max(0, bound.measured))));
    set(bar.children[2], { x1: share(bound.allowed), x2: share(bound.allowed), visibility: bound.allowed ? "visible" : "hidden" });
    text(why, instead ?? bound.why);
  });
}
