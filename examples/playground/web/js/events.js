// The log of events, the latest first. Lines of processes arrive a little later, because equal lines are merged. They
// are inserted at their time.

import { byId, el, seconds } from "./dom.js";

const KEEP = 200;
const list = byId("events");
let last = 0;

const line = (e) => el("li", { class: e.kind, "data-seq": e.seq, "data-at": e.at }, el("time", {}, seconds(e.at)), el("span", {}, e.text));

export function begin(events) {
  // Old events are not read out again.
  list.setAttribute("aria-live", "off");
  list.replaceChildren();
  last = 0;
  for (const e of events) add(e);
  setTimeout(() => list.removeAttribute("aria-live"), 1000);
}

export function add(e) {
  if (e.seq <= last) return; // it was already in hello
  last = e.seq;
  const before = [...list.children].find((item) => Number(item.dataset.at) <= e.at);
  list.insertBefore(line(e), before ?? null);
  while (list.children.length > KEEP) list.lastChild.remove();
}
