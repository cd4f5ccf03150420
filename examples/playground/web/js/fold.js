// Sections that can be folded. On a phone they are folded at the start, so that the page is short.

import { byId } from "./dom.js";

const PHONE = matchMedia("(max-width: 640px)");
const folds = [...document.querySelectorAll("details.fold")];

// adapt folds all on a phone, and unfolds all elsewhere.
function adapt() {
  for (const fold of folds) fold.open = !PHONE.matches;
}

// show unfolds the section that the address names.
function show() {
  const target = location.hash && byId(location.hash.slice(1));
  const fold = target && target.querySelector(":scope > details.fold");
  if (!fold || fold.open) return;
  fold.open = true;
  target.scrollIntoView();
}

// whenUnfolded calls draw after something was unfolded: a drawing has no size before.
export function whenUnfolded(draw) {
  for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", () => details.open && draw());
}

PHONE.addEventListener("change", adapt);
addEventListener("hashchange", show);
// A second click on the same link does not change the address.
for (const link of document.querySelectorAll('nav a[href^="#"]')) link.addEventListener("click", () => setTimeout(show));
adapt();
show();
