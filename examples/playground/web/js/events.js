// The log of what happened, the latest first.

import { byId, el, seconds } from "./dom.js";

const KEEP = 200;
const list = byId("events");
let last = 0;

const line = (e) => el("li", { class: e.kind, "data-seq": e.seq }, el("time", {}, seconds(e.at)), el("span", {}, e.text));

export function begin(events) {
  list.replaceChildren(...events.map(line).reverse());
  last = events.at(-1)?.seq ?? 0;
}

export function add(e) {
  if (e.seq <= last) return; // it was part of hello
  last = e.seq;
  list.prepend(line(e));
  while (list.children.length > KEEP) list.lastChild.remove();
}
