// The processes of the fleet, each with what it does and what can be done to it.

import { byId, el, number, set, svg, text } from "./dom.js";
import { ask } from "./net.js";
import { tint } from "./chart.js";

const list = byId("processes");

export function show({ state, samples }) {
  while (list.children.length > state.processes.length) list.lastChild.remove();
  while (list.children.length < state.processes.length) list.append(row(list.children.length + 1));
  const latest = samples.slice(-4);
  const span = latest.reduce((sum, s) => sum + s.span, 0);
  const rates = state.processes.map((_, i) => (span && state.settings.running
    ? latest.reduce((sum, s) => sum + (s.admitted[i] ?? 0), 0) * 1000 / span : 0));
  const widest = Math.max(state.settings.rate / state.processes.length * 2, ...rates);
  state.processes.forEach((p, i) => update(list.children[i], p, rates[i], widest, state.processes.length));
}

function row(n) {
  const act = (action) => () => ask("POST", `api/fleet/processes/${n}`, { action });
  const item = el("li", { "data-process": n },
    el("span", { class: "name" }, svg("svg", { width: 12, height: 12, "aria-hidden": "true", class: "swatch" }, svg("rect", { width: 12, height: 12, rx: 3 })), `Process ${n}`),
    el("span", { class: "pill" }),
    el("span", { class: "rate" },
      svg("svg", { "aria-hidden": "true" }, svg("rect", { class: "track", width: "100%", height: 10, rx: 4 }), svg("rect", { class: "fill", height: 10, rx: 4 })), el("b")),
    el("span", { class: "facts" }),
    el("span", { class: "buttons" },
      el("button", { type: "button", onclick: act("pause"), "aria-label": `Pause process ${n}` }, "Pause"),
      el("button", { type: "button", onclick: act("resume"), "aria-label": `Resume process ${n}` }, "Resume"),
      el("button", { type: "button", class: "danger", onclick: act("crash"), "aria-label": `Crash process ${n}` }, "Crash"),
      el("button", { type: "button", onclick: act("start"), "aria-label": `Start process ${n}` }, "Start")));
  return item;
}

const KINDS = { running: "good", paused: "warn", crashed: "bad" };

function update(item, p, rate, widest, count) {
  const [name, pill, bar, facts, buttons] = item.children;
  const colour = tint(p.number - 1, count);
  name.querySelector("rect").setAttribute("fill", colour);
  pill.className = `pill ${KINDS[p.state]}`;
  text(pill, p.state);
  set(bar.querySelector(".fill"), { width: `${(100 * rate / widest).toFixed(1)}%`, fill: colour });
  text(bar.querySelector("b"), `${number(rate)}/s`);
  facts.replaceChildren(...(p.state === "crashed" ? [] : [
    fact("lease", number(p.held)), fact("owed", number(p.owed)), fact("N", p.n), fact("C", p.credit),
    el("span", { class: p.breaker === "closed" ? "" : "open" }, `breaker ${p.breaker}`),
  ]));
  const [pause, resume, crash, start] = buttons.children;
  pause.hidden = p.state !== "running";
  resume.hidden = p.state !== "paused";
  crash.hidden = p.state === "crashed";
  start.hidden = p.state !== "crashed";
}

const fact = (what, value) => el("span", {}, `${what} `, el("b", {}, String(value)));
