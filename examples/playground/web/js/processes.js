// The processes of the fleet, with their figures and buttons.

import { byId, el, number, set, svg, text } from "./dom.js";
import { ask } from "./net.js";
import { tint } from "./chart.js";
import { loaded } from "./panels.js";

const list = byId("processes");

export function show({ state, samples }) {
  keep(list, state.processes.length, row);
  const latest = samples.slice(-4);
  const span = latest.reduce((sum, s) => sum + s.span, 0);
  const perSecond = (of, i) => (span && loaded(state) ? latest.reduce((sum, s) => sum + (s[of][i] ?? 0), 0) * 1000 / span : 0);
  const rates = state.processes.map((_, i) => perSecond("admitted", i));
  const widest = Math.max(state.settings.rate / state.processes.length * 2, ...rates);
  state.processes.forEach((p, i) => update(list.children[i], p, { admitted: rates[i], calls: perSecond("calls", i), widest, count: state.processes.length }));
}

// keep makes a list have a row for each process.
export function keep(list, count, row) {
  while (list.children.length > count) list.lastChild.remove();
  while (list.children.length < count) list.append(row(list.children.length + 1));
}

// head returns the name of a process, with its colour, and its state.
export const head = (n) => [
  el("span", { class: "name" }, svg("svg", { width: 12, height: 12, "aria-hidden": "true", class: "swatch" }, svg("rect", { width: 12, height: 12, rx: 3 })), `Process ${n}`),
  el("span", { class: "pill" }),
];

// actions returns the two buttons of a process. They are never replaced, whatever their
// action is, so that they keep the focus.
export function actions(n) {
  const act = (e) => ask("POST", `api/fleet/processes/${n}`, { action: e.currentTarget.dataset.action });
  return [el("button", { type: "button", onclick: act }), el("button", { type: "button", onclick: act })];
}

function row(n) {
  return el("li", { "data-process": n },
    ...head(n),
    el("span", { class: "rate" },
      svg("svg", { "aria-hidden": "true" }, svg("rect", { class: "track", width: "100%", height: 10, rx: 4 }), svg("rect", { class: "fill", height: 10, rx: 4 })), el("b")),
    el("span", { class: "facts" }),
    el("span", { class: "buttons" }, ...actions(n)));
}

function offer(button, action, n) {
  const label = action[0].toUpperCase() + action.slice(1);
  set(button, { "data-action": action, "aria-label": `${label} process ${n}` });
  text(button, label);
}

const KINDS = { running: "good", paused: "warn", crashed: "bad" };

// showHead shows the colour and the state of a process, and returns the colour.
export function showHead(name, pill, p, count) {
  const colour = tint(p.number - 1, count);
  name.querySelector("rect").setAttribute("fill", colour);
  pill.className = `pill ${KINDS[p.state]}`;
  text(pill, p.state);
  return colour;
}

export function showActions([halt, crash], p) {
  offer(halt, p.state === "paused" ? "resume" : "pause", p.number);
  halt.hidden = p.state === "crashed";
  offer(crash, p.state === "crashed" ? "start" : "crash", p.number);
  crash.classList.toggle("danger", p.state !== "crashed");
}

function update(item, p, { admitted, calls, widest, count }) {
  const [name, pill, bar, facts, buttons] = item.children;
  const colour = showHead(name, pill, p, count);
  set(bar.querySelector(".fill"), { width: `${(100 * admitted / widest).toFixed(1)}%`, fill: colour });
  text(bar.querySelector("b"), `${number(admitted)}/s`);
  set(item, { "data-n": p.n, "data-credit": p.credit, "data-breaker": p.breaker });
  facts.replaceChildren(...(p.state === "crashed" ? [] : [
    fact("of", `${number(calls)}/s`), fact("lease", number(p.held)), ...[fact("owed", number(p.owed)), fact("N", p.n), fact("C", p.credit)].map(advanced),
    el("span", { class: p.breaker === "closed" ? "" : "open" }, `breaker ${p.breaker}`),
  ]));
  showActions(buttons.children, p);
}

// advanced marks what is shown only beside the advanced settings.
export function advanced(node) {
  node.classList.add("advanced");
  return node;
}

export const fact = (what, value) => el("span", {}, `${what} `, el("b", {}, String(value)));
