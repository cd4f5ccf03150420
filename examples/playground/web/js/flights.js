// The calls in flight of the fleet: figures, bound, processes.

import { byId, el, number, set, svg, text } from "./dom.js";
import { ask } from "./net.js";
import { showBounds } from "./bounds.js";
import * as chart from "./chart-flights.js";
import { cells } from "./panels.js";
import { actions, advanced, fact, head, keep, showActions, showHead } from "./processes.js";
import { panel } from "./redis.js";

const FIGURES = [
  ["running", "Running"], ["most", "Most at once"], ["uncounted", "Not counted"],
  ["waiting", "Waiting"], ["booked", "Booked in Redis"], ["decided", "Admitted / denied"],
];
const LEGEND = [
  ["shared", "running, by process"], ["spare", "held for the next calls"],
  ["alone", "of the fallback, not counted"], ["outlived", "of a process that was cut off, not counted"],
];
const KEEP = 280; // samples, a bit more than a minute
const MOST = 48; // marks of a process

const figures = cells("flights-figures", "flights", FIGURES);
const redis = panel("flights-redis");
const list = byId("flights-processes");
let samples = [];

byId("flights-legend").append(...LEGEND.map(([kind, what]) => el("li", {}, mark(kind), what)));
byId("flights-recount").addEventListener("click", () => ask("POST", "api/fleet/flights/recount"));

export function begin(all) { samples = all; }

export function sample(s) {
  const last = samples.at(-1);
  if (last && s.seq <= last.seq) return; // it was already in hello
  samples.push(s);
  if (samples.length > KEEP) samples.splice(0, samples.length - KEEP);
}

export function draw({ settings }) { chart.draw(samples, settings.permits); }

export function show(state) {
  const { flights, settings } = state;
  showFigures(flights, settings.permits);
  redis.show(state.redis);
  const worst = Math.max(settings.permits, ...flights.bounds.map((b) => b.measured));
  showBounds(byId("flights-bounds"), flights.bounds, worst * 1.25, flights.counting ? null : "counting begins when the running calls fit the new limit");
  text(byId("flights-last"), flights.last);
  keep(list, flights.processes.length, row);
  flights.processes.forEach((p, i) => update(list.children[i], p, settings, flights.processes.length));
  draw(state);
}

function showFigures(flights, limit) {
  const { running, most, booked } = flights;
  text(figures.running, `${running.shared} of ${limit}`);
  text(figures.most, most.shared);
  text(figures.uncounted, running.alone + running.outlived);
  figures.uncounted.className = running.alone + running.outlived ? "warn" : "";
  text(figures.waiting, flights.waiting);
  text(figures.booked, booked.known ? booked.permits : "–");
  text(figures.decided, `${number(flights.admitted)} / ${number(flights.denied)}`);
  set(figures.running, { "data-alone": running.alone, "data-outlived": running.outlived });
  set(figures.decided, { "data-admitted": flights.admitted, "data-denied": flights.denied, "data-fallback": flights.fallback });
  text(byId("flights-holders"), about(booked));
  const errors = byId("flights-errors");
  errors.hidden = flights.errors === 0;
  text(errors, `${number(flights.errors)} calls returned an error instead of a decision. There should be none.`);
}

function about(booked) {
  if (!booked.known) return "Its permits cannot be read.";
  const holders = booked.holders === 1 ? "1 process holds" : `${booked.holders} processes hold`;
  const learns = booked.learn_ms > 0 ? ` It learns the running calls, and grants permits in ${(booked.learn_ms / 1000).toFixed(1)} s.` : "";
  return `${holders} ${booked.permits === 1 ? "1 permit" : `${booked.permits} permits`}.${learns}`;
}

// mark returns the sign of a permit or a call. The second argument is its colour.
function mark(kind, fill) {
  return svg("svg", { class: "call", width: 14, height: 14, "aria-hidden": "true" },
    svg("rect", { class: kind, x: 1, y: 1, width: 12, height: 12, rx: 3, ...(fill ? { fill } : {}) }));
}

function row(n) {
  const call = (count) => () => ask("POST", `api/fleet/processes/${n}/calls`, { n: count });
  const send = (count, label) => el("button", { type: "button", class: count === 1 ? "send" : "burst", onclick: call(count) }, label);
  return el("li", { "data-flights": n },
    ...head(n),
    el("span", { class: "permits" }),
    el("span", { class: "buttons" }, send(1, "Send call"), send(5, "Send 5"), ...actions(n)),
    el("span", { class: "facts" }),
    el("span", { class: "small next" }));
}

function update(item, p, settings, count) {
  const [name, pill, permits, buttons, facts, next] = item.children;
  const colour = showHead(name, pill, p, count);
  const { shared, alone, outlived } = p.running;
  const marks = [["shared", shared], ["outlived", outlived], ["alone", alone], ["spare", p.spare]].flatMap(([kind, n]) => Array(n).fill(kind));
  permits.replaceChildren(...marks.slice(0, MOST).map((kind) => mark(kind, kind === "shared" ? colour : null)),
    ...(marks.length > MOST ? [`+${marks.length - MOST}`] : []));
  set(item, { "data-running": shared, "data-alone": alone, "data-outlived": outlived, "data-spare": p.spare, "data-held": p.held });
  const [send, burst] = buttons.children;
  const takes = `a call that takes ${settings.call_ms / 1000} s`;
  for (const [button, what] of [[send, `Send ${takes}`], [burst, `Send 5 times ${takes}`]]) {
    set(button, { "aria-label": `${what}, process ${p.number}`, title: what });
    button.hidden = p.state !== "running";
  }
  showActions([...buttons.children].slice(2), p);
  const crashed = p.state === "crashed";
  facts.replaceChildren(...(crashed ? [] : [
    fact("running", shared + outlived + alone), fact("spare", p.spare), fact("held", p.held), fact("waiting", p.waiting), advanced(fact("N", p.n)),
    ...(p.share > 0 ? [fact("share", p.share)] : []),
    el("span", { class: p.member ? "" : "open" }, p.member ? "member" : "not a member"),
  ]));
  text(next, crashed ? "" : `The next call: ${p.next}.`);
}
