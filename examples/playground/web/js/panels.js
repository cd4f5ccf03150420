// The figures, the sources of decisions, the state of Redis, and the bounds of the rate.

import { byId, el, number, perDecision, set, svg, text } from "./dom.js";
import { showBounds } from "./bounds.js";
import { panel } from "./redis.js";

const RECENT = 5000; // ms

const SOURCES = {
  lease: "lease", credit: "credit", redis: "Redis", deny_cache: "deny cache", fallback: "fallback", timeout: "timeout",
};

const FIGURES = [
  ["limit", "Limit"], ["admitted", "Admitted"], ["offered", "Offered"],
  ["messages", "Messages / decision"], ["n", "Processes"], ["breaker", "Breakers"],
];
const figures = cells("figures", "figure", FIGURES);
const redis = panel("redis");

// cells makes a cell for each figure, and returns their values by name.
export function cells(list, prefix, all) {
  const made = {};
  for (const [name, label] of all) {
    made[name] = el("dd", { id: `${prefix}-${name}` }, "–");
    byId(list).append(el("div", {}, el("dt", {}, label), made[name]));
  }
  return made;
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
  redis.show(state.redis);
  // The promised bounds set the scale. A value without a promise may be far larger, and fills its bar.
  const widest = Math.max(1, state.settings.burst, ...state.bounds.map((b) => b.allowed)) * 1.25;
  showBounds(byId("bounds"), state.bounds, widest, state.counting ? null : "counting begins when the old leases have ended");
}

function showFigures(state, sum) {
  const perSecond = (n) => (sum.span && loaded(state) ? `${number(n * 1000 / sum.span)}/s` : "0/s");
  const live = state.processes.filter((p) => p.state === "running");
  const range = (values) => {
    const low = Math.min(...values), high = Math.max(...values);
    return values.length === 0 ? "–" : low === high ? number(low) : `${number(low)}–${number(high)}`;
  };
  const open = live.filter((p) => p.breaker !== "closed").length;
  text(figures.limit, `${number(state.settings.rate)}/s`);
  text(figures.admitted, perSecond(sum.admitted));
  text(figures.offered, perSecond(sum.offered));
  set(figures.admitted, { "data-total": state.totals.admitted });
  set(figures.messages, { "data-total": state.totals.messages });
  text(figures.messages, perDecision(sum.messages, sum.decisions));
  text(figures.n, range(live.map((p) => p.n)));
  text(byId("figure-credit"), range(live.map((p) => p.credit)));
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
