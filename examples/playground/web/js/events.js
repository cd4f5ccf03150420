// The log of what happened, the latest first. What processes say is told a little later, all that said the same as one, and
// stands where it belongs.

import { byId, el, seconds } from "./dom.js";

const KEEP = 200;
const list = byId("events");
let last = 0;

const line = (e) => el("li", { class: e.kind, "data-seq": e.seq, "data-at": e.at }, el("time", {}, seconds(e.at)), el("span", {}, e.text));

export function begin(events) {
  // What has been is not read out once more.
  list.setAttribute("aria-live", "off");
  list.replaceChildren();
  last = 0;
  for (const e of events) add(e);
  setTimeout(() => list.removeAttribute("aria-live"), 1000);
}

export function add(e) {
  if (e.seq <= last) return; // it was part of hello
  last = e.seq;
  const before = [...list.children].find((item) => Number(item.dataset.at) <= e.at);
  list.insertBefore(line(e), before ?? null);
  while (list.children.length > KEEP) list.lastChild.remove();
}
