// The fleet: keeps the data from the server and passes it to the panels.

import { byId } from "./dom.js";
import { ask } from "./net.js";
import * as chart from "./chart.js";
import * as controls from "./controls.js";
import * as panels from "./panels.js";
import * as events from "./events.js";
import * as flights from "./flights.js";
import { whenUnfolded } from "./fold.js";
import * as outage from "./outage.js";
import * as processes from "./processes.js";

const KEEP = 280; // samples, a bit more than a minute

const known = { state: null, samples: [], sources: [] };

byId("recount").addEventListener("click", () => ask("POST", "api/fleet/recount"));

// begin replaces all data, at the start and after a lost connection.
export function begin(history) {
  known.samples = history.samples ?? [];
  known.sources = history.sources;
  flights.begin(history.flights ?? []);
  events.begin(history.events ?? []);
  if (history.state.processes) update(history.state);
}

export function update(state) {
  known.state = state;
  if (document.hidden) return; // the page is hidden
  controls.show(state.settings);
  panels.show(known);
  outage.show(state);
  processes.show(known);
  flights.show(state);
  chart.draw(known);
}

document.addEventListener("visibilitychange", () => known.state && update(known.state));

export function sample(s) {
  const last = known.samples.at(-1);
  if (last && s.seq <= last.seq) return; // it was already in hello
  known.samples.push(s);
  if (known.samples.length > KEEP) known.samples.splice(0, known.samples.length - KEEP);
}

export const event = events.add;
export const flight = flights.sample;

function draw() {
  if (!known.state) return;
  chart.draw(known);
  flights.draw(known.state);
}

addEventListener("resize", draw);
whenUnfolded(draw);
