// The settings of the fleet: sliders, switches, and the advanced ones with the mode. A slider sends its value when it is
// released, or when the arrow keys have rested.

import { byId, el, number, text } from "./dom.js";
import { ask } from "./net.js";

const SLIDERS = [
  { field: "processes", label: "Processes", steps: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], show: (n) => `${n}` },
  { field: "load", label: "Load", steps: [0, 0.2, 0.5, 0.8, 1, 1.2, 1.5, 2, 3, 5, 10, 20], show: (n) => `${n} × limit` },
  { field: "rate", label: "Limit", steps: [10, 20, 50, 100, 200, 500, 1000, 2000], show: (n) => `${number(n)}/s` },
  { field: "burst", label: "Burst", steps: [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000], show: (n) => `${number(n)} units` },
];

const ADVANCED = [
  { field: "k", label: "K, sync after", steps: [0, 1, 5, 10, 20, 50, 100, 200, 500, 1000, 5000], show: (n) => (n ? `${number(n)} units` : "adaptive") },
  { field: "t_ms", label: "T, or after", steps: [5, 10, 20, 50, 100, 200, 500, 1000, 2000], show: (n) => `${n} ms` },
  { field: "overshoot", label: "Overshoot", steps: [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], show: (n) => `${Math.round(n * 100)} % of burst` },
];

const CALLS = [
  { field: "call_load", label: "Load", steps: [0, 0.2, 0.5, 0.8, 1, 1.5, 2, 3, 5], show: (n) => `${n} × limit` },
  { field: "permits", label: "Limit", steps: [1, 2, 4, 8, 12, 20, 40], show: (n) => `${n} concurrent` },
  { field: "call_ms", label: "Time of a call", steps: [100, 300, 1000, 3000, 10_000, 30_000, 60_000], show: (n) => `${n / 1000} s` },
];

const MODES = ["auto", "strict", "deferred", "exact"];
const ABOUT = {
  auto: "Leases first, and credit for new keys and spikes.",
  strict: "Leases only: Redis has debited each unit before it is admitted.",
  deferred: "Credit only: counts locally, and pushes every K units or T.",
  exact: "Every decision asks Redis.",
};

const REST = 250; // ms

let settings = null; // the server's last state
const shown = {}; // by field: the function that shows a value

for (const slider of SLIDERS) byId("controls").append(range(slider));
byId("controls").append(switches());
byId("advanced-controls").append(modes(), ...ADVANCED.map(range));
const more = byId("advanced");
more.addEventListener("toggle", () => document.body.classList.toggle("in-depth", more.open));
for (const slider of CALLS) byId("call-controls").append(range(slider));

function range({ field, label, steps, show }) {
  const output = el("output");
  const input = el("input", { type: "range", id: `set-${field}`, min: 0, step: 1 });
  let values = steps;
  const say = () => {
    const value = show(values[input.value]);
    text(output, value);
    input.setAttribute("aria-valuetext", value);
  };
  const put = (value) => {
    // A value that another page or curl has set gets its own step.
    values = steps.includes(value) ? steps : [...steps, value].sort((a, b) => a - b);
    input.max = values.length - 1;
    input.value = values.indexOf(value);
    say();
  };
  // A state that the server pushes meanwhile is older than the value that is being set.
  let timer = 0, sending = 0;
  input.addEventListener("input", say);
  input.addEventListener("change", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      timer = 0;
      sending++;
      const done = await change({ [field]: values[input.value] });
      sending--;
      setTimeout(() => settings && shown[field](settings[field]), done ? REST : 0);
    }, REST);
  });
  shown[field] = (value) => { if (!input.matches(":active") && !timer && !sending) put(value); };
  if (field === "overshoot") shown.overshootFor = (mode) => { input.disabled = mode !== "auto"; };
  // An output is labelable, too. Without "for" it would get the label.
  return el("label", { for: input.id }, label, output, input);
}

function modes() {
  const about = el("small", { "aria-live": "polite" });
  const radios = MODES.map((mode) => el("input", { type: "radio", name: "mode", value: mode, id: `set-mode-${mode}`, onchange: () => change({ mode }) }));
  shown.mode = (mode) => {
    for (const radio of radios) radio.checked = radio.value === mode;
    text(about, ABOUT[mode]);
    shown.overshootFor(mode);
  };
  return el("fieldset", {}, el("legend", {}, "Mode"),
    el("div", { class: "segments" }, ...radios.map((radio, i) => el("label", {}, radio, MODES[i]))), about);
}

function switches() {
  const naive = el("input", { type: "checkbox", id: "set-naive", onchange: () => change({ naive: naive.checked }) });
  const run = el("button", { type: "button", id: "run", onclick: () => change({ running: !settings.running }) });
  shown.naive = (on) => { naive.checked = on; };
  shown.running = (on) => {
    text(run, on ? "Stop the load" : "Start the load");
    run.className = on ? "" : "primary";
  };
  return el("div", { class: "buttons" }, run,
    el("label", { class: "switch", for: "set-naive" }, naive, "Compare with count and push"));
}

// change sends only the changed setting: another page may change the others.
async function change(part) {
  if (!settings) return false;
  const done = await ask("PATCH", "api/fleet/settings", part) !== false;
  if (!done) show(settings);
  return done;
}

export function show(now) {
  settings = now;
  for (const [field, put] of Object.entries(shown)) if (field in now) put(now[field]);
}
