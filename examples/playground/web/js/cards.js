// The cards of the algorithms: their drawings, their buttons, and the answer to the last request.

import { byId, el, set, stillness, svg, text } from "./dom.js";
import { ask, complain, now } from "./net.js";
import { bucket } from "./draw-bucket.js";
import { reserve } from "./draw-classes.js";
import { queue } from "./draw-queue.js";
import { fixed, sliding } from "./draw-windows.js";
import { log } from "./draw-log.js";
import { dots, SPAN } from "./draw-dots.js";

const ABOUT = {
  "token-bucket": ["Tokens are added at the rate, up to the burst. Each request takes one.", bucket],
  "leaky-bucket": ["Each request fills the bucket, which leaks at the rate. A request for which it has no room is denied.", bucket],
  "leaky-queue": ["Requests wait in a queue and leave it at the rate. When it is full, requests are denied.", queue],
  "fixed-window": ["Counts requests in windows of the clock. Cheap, but two bursts fit at a border.", fixed],
  "sliding-window": ["Counts this window, and the part of the window before that still matters.", sliding],
  "sliding-log": ["Keeps the time of every admitted request: exact, at the cost of memory.", log],
  "classes": ["Tokens are added at the rate, up to the burst. A batch request never takes a token below the floor.", reserve],
};

const cards = new Map(); // by id

byId("reset-all").addEventListener("click", () => ask("POST", "api/reset"));

// update shows a state of the server. If anew is set, the server may have been restarted and may count from the
// beginning.
export function update(state, anew) {
  let card = cards.get(state.id);
  if (!card) {
    card = make(state);
    cards.set(state.id, card);
    byId(state.classes.length ? "class-cards" : "cards").append(card.node);
  }
  if (!anew && card.state && state.seq < card.state.seq) return; // of two simultaneous requests, the older answer came last
  card.state = state;
  card.stale = true;
  text(card.title, state.title);
  text(card.last, state.last);
  showLimit(card, state);
  showClasses(card, state);
  showAnswer(card, state);
  card.drawing.setAttribute("aria-label", [
    `${state.title}, ${state.text}: ${state.remaining} left, ${admitted(state)}`,
    ...state.classes.map((c) => `${c.name}${c.floor ? ` with a floor of ${c.floor}` : ""}, ${admitted(c)}`),
  ].join("; "));
  set(card.node, { "data-remaining": state.remaining, "data-sent": state.sent, "data-passed": state.passed });
  animate();
}

const admitted = (counts) => `${counts.passed} of ${counts.sent} admitted`;

function make({ id, classes }) {
  const [about, draw] = ABOUT[id];
  const wide = classes.length > 0;
  const title = el("h3", { id: `${id}-title` });
  const drawing = svg("svg", { class: "drawing", role: "img", viewBox: `0 0 360 ${wide ? 196 : 150}` });
  const send = (n, of) => () => ask("POST", `api/cards/${id}/send`, { n, class: of });
  const sends = (of, label) => [
    el("button", { type: "button", class: "primary send", "aria-label": label("Send request"), onclick: send(1, of) }, "Send request"),
    el("button", { type: "button", class: "burst", "aria-label": label("Burst 10"), onclick: send(10, of) }, "Burst 10"),
  ];
  const reset = el("button", { type: "button", class: "reset", onclick: () => ask("POST", `api/cards/${id}/reset`) }, "Reset");
  const counts = classes.map(() => el("span", { class: "small count" }));
  const buttons = wide
    ? [...classes.map((c, i) => el("div", { class: "buttons class", role: "group", "aria-label": `Class ${c.name}`, "data-class": c.name },
      el("b", {}, c.name), counts[i], ...sends(c.name, (what) => `${what}, ${c.name}`))), el("div", { class: "buttons" }, reset)]
    : [el("div", { class: "buttons" }, ...sends(undefined, () => null), reset)];
  const last = el("p", { class: "last", "aria-live": "polite" });
  const answer = el("pre", { class: "answer", tabindex: 0, role: "region", "aria-label": `Answer to the last request: ${id.replace("-", " ")}` });
  const fields = {
    rate: el("input", { type: "number", min: 1, max: 100, step: 1, inputmode: "numeric" }),
    period: el("input", { type: "number", min: 0.1, max: 60, step: 0.1, inputmode: "decimal" }),
    burst: el("input", { type: "number", min: 1, max: 100, step: 1, inputmode: "numeric" }),
  };
  const burst = el("label", {}, id === "leaky-queue" ? "Queue" : "Burst", fields.burst);
  const form = el("form", { class: "limit", novalidate: true, "aria-label": "Limit" },
    el("label", {}, "Units", fields.rate), el("label", {}, "per seconds", fields.period), burst,
    el("button", { type: "submit" }, "Set the limit"));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    const shown = Object.entries({ Units: fields.rate, "per seconds": fields.period, ...(burst.hidden ? {} : { [burst.firstChild.data]: fields.burst }) });
    const empty = shown.find(([, field]) => field.value === "");
    if (empty) {
      complain(`${empty[0]}: enter a number`);
      return;
    }
    // The server refuses numbers that are too large or not whole.
    ask("PUT", `api/cards/${id}/limit`, {
      rate: Number(fields.rate.value), period_ms: milliseconds(fields.period.value), burst: burst.hidden ? 0 : Number(fields.burst.value),
    });
  });
  const paths = wide ? classes.map((c) => `${id}/${c.name}`) : [id];
  const node = el("article", { class: `panel card${wide ? " wide" : ""}`, id: `card-${id}`, "aria-labelledby": `${id}-title` },
    el("div", { class: "half" }, title, el("p", { class: "about" }, about), drawing, ...buttons),
    el("div", { class: "half" }, last, answer,
      el("details", {}, el("summary", {}, "Change the limit, or use curl"), form,
        ...paths.map((path) => el("p", { class: "small" }, el("code", {}, `curl -i ${location.origin}/try/${path}`))))));
  return { node, title, drawing, last, answer, fields, burst, counts, draw, state: null, stale: true };
}

// milliseconds returns seconds × 1000 without floating-point errors: 1.1 becomes 1100, and 1.0005 becomes 1000.5.
const milliseconds = (seconds) => Number((seconds * 1000).toPrecision(12));

function showLimit(card, state) {
  card.burst.hidden = state.id.includes("window") || state.id.includes("log");
  const values = { rate: state.rate, period: state.period_ms / 1000, burst: state.burst };
  for (const [name, field] of Object.entries(card.fields)) {
    if (document.activeElement !== field) field.value = values[name];
  }
}

function showClasses(card, state) {
  state.classes.forEach((c, i) => {
    text(card.counts[i], admitted(c));
    set(card.counts[i].parentElement, { "data-sent": c.sent, "data-passed": c.passed });
  });
}

const STATUS = { 200: "200 OK", 429: "429 Too Many Requests", 503: "503 Service Unavailable" };

function showAnswer(card, state) {
  const answer = state.answers.at(-1);
  if (!answer) {
    card.answer.replaceChildren(el("span", { class: "body" }, "The answer to a request is shown here, with its headers."));
    return;
  }
  const lines = answer.headers.map(([name, value]) => `${spelled(name)}: ${value}\n`).join("");
  card.answer.replaceChildren(
    el("b", { class: answer.status === 200 ? "ok" : "no" }, `${answer.status === 200 ? "✓" : "✗"} ${STATUS[answer.status] ?? answer.status}`),
    lines, ...(answer.status === 200 ? [] : [el("span", { class: "body" }, answer.body)]));
}

// spelled returns a header name as in the RFCs. Go writes it as Ratelimit.
const spelled = (name) => name.replace("Ratelimit", "RateLimit");

// Drawing repeats only while something moves. Cards out of sight are skipped.

const FRAME = 50; // ms: smooth enough for the eye, and a low load for the processor
const seen = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target) : seen.delete(target);
  animate();
});
let timer = 0;

function animate() {
  if (!timer && !document.hidden) timer = setTimeout(frame, 0);
}

function frame() {
  timer = 0;
  if (document.hidden) return;
  const at = now();
  let moving = false;
  for (const card of cards.values()) {
    watcher.observe(card.drawing); // once
    if (!seen.has(card.drawing) && !card.stale) continue;
    card.stale = false;
    const parts = card.draw(card.state, at);
    card.drawing.replaceChildren(...parts.shapes, ...dots(card.state, at));
    const latest = card.state.dots.at(-1);
    moving ||= seen.has(card.drawing) && (parts.moving || (latest && at - latest.at - latest.delay_ms < SPAN));
  }
  if (moving) timer = setTimeout(frame, stillness.matches ? 500 : FRAME);
}

document.addEventListener("visibilitychange", animate);
