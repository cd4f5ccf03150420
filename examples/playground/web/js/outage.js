// The button under the heading, and what there is to see.

import { byId, number, set, text } from "./dom.js";
import { ask } from "./net.js";

const LENGTH = 10; // seconds

const button = byId("outage");
const story = byId("story");

button.addEventListener("click", () => {
  if (button.getAttribute("aria-disabled") !== "true") ask("POST", "api/fleet/redis", { action: "kill", for_ms: LENGTH * 1000 });
});

export function show({ redis, settings, bounds, processes }) {
  const dead = redis.state === "dead" || redis.state === "hung";
  const does = redis.embedded ? "Kill Redis" : "Cut Redis off";
  text(button, redis.back_in > 0 ? `Redis comes back in ${redis.back_in} s` : `${does} for ${LENGTH} seconds`);
  set(button, { "aria-disabled": String(redis.back_in > 0) });
  text(story, dead ? during(settings, processes) : after(settings, bounds));
}

function during(settings, processes) {
  const most = Math.max(1, ...processes.filter((p) => p.state === "running").map((p) => p.n));
  const compare = settings.naive ? " With count and push, each may admit the whole limit." : "";
  return `Each process now decides alone, with its share: 1/${most} of the limit.${compare}`;
}

function after(settings, bounds) {
  const of = (name) => bounds.find((b) => b.name === name);
  const alone = of("alone"), naive = of("naive");
  if (!alone) return "See whether the blue area stays at the dashed line.";
  const promise = alone.allowed ? `, and the promise is ${number(alone.allowed)}` : "";
  const compare = naive ? ` Count and push: ${number(naive.measured)}.` : "";
  return `In the last outage the fleet admitted at most ${number(alone.measured)} units more than rate × time${promise}.${compare}`;
}
