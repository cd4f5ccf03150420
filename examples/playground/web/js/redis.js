// The state of Redis, and the buttons for its faults, in each section that shows them.

import { byId, el, set, text } from "./dom.js";
import { ask } from "./net.js";

const STATES = {
  up: ["good", "up"], dead: ["bad", "dead"], hung: ["bad", "hung"], slow: ["warn", "slow"],
};

const fault = (action, of = {}) => ask("POST", "api/fleet/redis", { action, ...of });
// A disabled button keeps the focus. Otherwise keyboard users would have to begin at the top again.
const unlessOff = (act) => (e) => { if (e.currentTarget.getAttribute("aria-disabled") !== "true") act(); };

// panel fills the elements whose ids begin with a prefix.
export function panel(prefix) {
  const slowBy = el("select", { id: `${prefix}-slow-by`, "aria-label": "Slow by" },
    ...[10, 30, 80, 150, 400].map((ms) => el("option", { value: ms, selected: ms === 30 }, `${ms} ms`)));
  const button = (name, label, danger, act) => el("button", { type: "button", id: `${prefix}-${name}`, class: danger ? "danger" : null, onclick: act }, label);
  const buttons = {
    dead: button("kill", "Kill", true, () => fault("kill")),
    hung: button("hang", "Hang", true, () => fault("hang")),
    slow: button("slow", "Slow", true, () => fault("slow", { ms: Number(slowBy.value) })),
    wipe: button("wipe", "Wipe", true, unlessOff(() => fault("wipe"))),
    up: button("restore", "Bring it back", false, unlessOff(() => fault("restore"))),
  };
  byId(`${prefix}-buttons`).append(buttons.dead, buttons.hung, buttons.slow, slowBy, buttons.wipe, buttons.up);
  return { show: (redis) => show(prefix, buttons, redis) };
}

function show(prefix, buttons, redis) {
  const [kind, word] = STATES[redis.state];
  const pill = byId(`${prefix}-state`);
  pill.className = `pill ${kind}`;
  text(pill, redis.state === "slow" ? `slow by ${redis.slow_ms} ms` : redis.state === "up" && !redis.embedded ? "no fault" : word);
  text(byId(`${prefix}-name`), redis.embedded
    ? "Embedded: it loses its memory when it is killed."
    : `Your Redis at ${redis.name}: faults affect only the playground's connections, and a wipe deletes only the playground's keys.`);
  text(buttons.dead, redis.embedded ? "Kill" : "Cut off");
  for (const state of ["dead", "hung", "slow"]) buttons[state].classList.toggle("on", redis.state === state);
  set(buttons.up, { "aria-disabled": String(redis.state === "up") });
  buttons.up.className = redis.state === "up" ? "" : "primary";
  set(buttons.wipe, { "aria-disabled": String(redis.state === "dead" && redis.embedded) });
}
