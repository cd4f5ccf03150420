// The figures, the sources of decisions, the state of Redis, and the bounds.

import { byId, el, number, perDecision, set, svg, text } from "./dom.js";
import { ask } from "./net.js";

const RECENT = 5000; // ms

const SOURCES = {
  lease: "lease", credit: "credit", redis: "Redis", deny_cache: "deny cache", fallback: "fallback", timeout: "timeout",
};

const FIGURES = [
  ["admitted", "Admitted"], ["offered", "Offered"], ["messages", "Messages / decision"],
  ["n", "Processes, N"], ["credit", "Credit, C"], ["breaker", "Breakers"],
];
const figures = {};
for (const [name, label] of FIGURES) {
  figures[name] = el("dd", { id: `figure-${name}` }, "–");
  byId("figures").append(el("div", {}, el("dt", {}, label), figures[name]));
}

// recent returns the sums over the samples of the last seconds.
function recent(samples) {
  const sum = { span: 0, offered: 0, admitted: 0, messages: 0, sources: [] };
  const latest = samples.at(-1)?.at ?? 0;
  for (const s of samples) {
    if (s.at <= latest - RECENT) continue;
    sum.span += s.span;
    sum.offered += s.offered;
    sum.messages += s.messages;
    sum.admitted += s.admitted.reduce((a, b) => a + b, 0);
    s.sources.forEach((n, i) => { sum.sources[i] = (sum.sources[i] ?? 0) + n; });
  }
  sum.decisions = sum.sources.reduce((a, b) => a + b, 0);
  return sum;
}

// loaded reports whether calls are made. If not, the latest samples are old.
export const loaded = (state) => state.settings.running && state.settings.load > 0;

export function show({ state, samples, sources }) {
  const sum = recent(samples);
  showFigures(state, sum);
  showSources(state, sum, sources);
  showRedis(state.redis);
  showBounds(state);
}

function showFigures(state, sum) {
  const perSecond = (n) => (sum.span && loaded(state) ? `${number(n * 1000 / sum.span)}/s` : "0/s");
  const live = state.processes.filter((p) => p.state === "running");
  const range = (values) => {
    const low = Math.min(...values), high = Math.max(...values);
    return values.length === 0 ? "–" : low === high ? number(low) : `${number(low)}–${number(high)}`;
  };
  const open = live.filter((p) => p.breaker !== "closed").length;
  text(figures.admitted, perSecond(sum.admitted));
  text(figures.offered, perSecond(sum.offered));
  set(figures.admitted, { "data-total": state.totals.admitted });
  set(figures.messages, { "data-total": state.totals.messages });
  text(figures.messages, perDecision(sum.messages, sum.decisions));
  text(figures.n, range(live.map((p) => p.n)));
  text(figures.credit, range(live.map((p) => p.credit)));
  text(figures.breaker, open ? `${open} of ${live.length} open` : "closed");
  figures.breaker.className = open ? "bad" : "";
  const errors = byId("errors");
  errors.hidden = state.totals.errors === 0;
  text(errors, `${number(state.totals.errors)} calls returned an error instead of a decision. There should be none.`);
}

function showSources(state, sum, names) {
  const list = byId("sources");
  if (list.children.length !== names.length) {
    list.replaceChildren(...names.map((name, i) => el("li", { "data-source": name },
      svg("svg", { class: "chart swatch", width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { class: `s${i}`, width: 12, height: 12, rx: 3 })),
      el("span", {}, SOURCES[name] ?? name), el("b"), el("small"))));
  }
  names.forEach((_, i) => {
    const [, , share, all] = list.children[i].children;
    const part = sum.decisions ? 100 * (sum.sources[i] ?? 0) / sum.decisions : 0;
    text(share, `${part > 0 && part < 1 ? part.toFixed(1) : part.toFixed(0)} %`);
    text(all, `${number(state.totals.sources[i])} in total`);
    list.children[i].dataset.total = state.totals.sources[i];
  });
}

const STATES = {
  up: ["good", "up"], dead: ["bad", "dead"], hung: ["bad", "hung"], slow: ["warn", "slow"],
};

const slowBy = el("select", { id: "slow-by", "aria-label": "Slow by" },
  ...[10, 30, 80, 150, 400].map((ms) => el("option", { value: ms, selected: ms === 30 }, `${ms} ms`)));
const fault = (action, of = {}) => ask("POST", "api/fleet/redis", { action, ...of });
// A disabled button keeps the focus. Otherwise keyboard users would have to begin at the top again.
const unlessOff = (act) => (e) => { if (e.currentTarget.getAttribute("aria-disabled") !== "true") act(); };
const buttons = {
  dead: el("button", { type: "button", id: "redis-kill", class: "danger", onclick: () => fault("kill") }, "Kill"),
  hung: el("button", { type: "button", id: "redis-hang", class: "danger", onclick: () => fault("hang") }, "Hang"),
  slow: el("button", { type: "button", id: "redis-slow", class: "danger", onclick: () => fault("slow", { ms: Number(slowBy.value) }) }, "Slow"),
  wipe: el("button", { type: "button", id: "redis-wipe", class: "danger", onclick: unlessOff(() => fault("wipe")) }, "Wipe"),
  up: el("button", { type: "button", id: "redis-restore", onclick: unlessOff(() => fault("restore")) }, "Bring it back"),
};
byId("redis-buttons").append(buttons.dead, buttons.hung, buttons.slow, slowBy, buttons.wipe, buttons.up);

function showRedis(redis) {
  const [kind, word] = STATES[redis.state];
  const pill = byId("redis-state");
  pill.className = `pill ${kind}`;
  text(pill, redis.state === "slow" ? `slow by ${redis.slow_ms} ms` : redis.state === "up" && !redis.embedded ? "no fault" : word);
  text(byId("redis-name"), redis.embedded
    ? "Embedded: it loses its memory when it is killed."
    : `Your Redis at ${redis.name}: faults affect only the playground's connections, and a wipe deletes only the playground's keys.`);
  text(buttons.dead, redis.embedded ? "Kill" : "Cut off");
  for (const state of ["dead", "hung", "slow"]) buttons[state].classList.toggle("on", redis.state === state);
  set(buttons.up, { "aria-disabled": String(redis.state === "up") });
  buttons.up.className = redis.state === "up" ? "" : "primary";
  set(buttons.wipe, { "aria-disabled": String(redis.state === "dead" && redis.embedded) });
}

const BOUNDS = { shared: "With Redis", alone: "Without Redis, last outage", naive: "Count and push" };
const VERDICTS = { holds: "✓", broken: "✗", none: "" };

function showBounds(state) {
  const list = byId("bounds");
  // The promised bounds set the scale. A value without a promise may be far larger, and fills its bar.
  const widest = Math.max(1, state.settings.burst, ...state.bounds.map((b) => b.allowed)) * 1.25;
  if (list.children.length !== state.bounds.length) {
    list.replaceChildren(...state.bounds.map(() => el("li", {},
      el("div", { class: "line" }, el("span"), el("b")),
      svg("svg", { "aria-hidden": "true" },
        svg("rect", { class: "track", x: 0, y: 1, width: "100%", height: 10, rx: 4 }),
        svg("rect", { class: "fill", x: 0, y: 1, height: 10, rx: 4 }),
        svg("line", { class: "mark", y1: 0, y2: 12 })),
      el("span", { class: "small" }))));
  }
  state.bounds.forEach((bound, i) => {
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
    text(why, state.counting ? bound.why : "counting begins when the old leases have ended");
  });
}
