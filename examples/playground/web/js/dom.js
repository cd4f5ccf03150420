// Functions for elements, and texts of figures.

const SVG = "http://www.w3.org/2000/svg";

// el makes an element: el("button", {type: "button", onclick: f}, "Send").
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  set(node, attributes);
  node.append(...children);
  return node;
}

// set sets attributes, or listeners if the value is a function. Null removes an
// attribute.
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else if (value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
}

// text sets a text only if it differs, because a live region is read out at each
// change.
export function text(node, value) {
  if (node.textContent !== String(value)) node.textContent = value;
}

export const byId = (id) => document.getElementById(id);

export function number(n) {
  return Math.round(n).toLocaleString("en");
}

// perDecision formats a ratio that is usually far below one.
export function perDecision(messages, decisions) {
  if (decisions === 0) return "–";
  const ratio = messages / decisions;
  return ratio >= 0.1 ? ratio.toFixed(2) : ratio.toPrecision(2).replace(/e.*/, (e) => "·10" + e.slice(1));
}

// seconds formats a time since the start: "12.3 s", and after three hours minutes and
// seconds, "183:20".
export function seconds(ms) {
  if (ms >= 3 * 3_600_000) return `${Math.floor(ms / 60_000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, "0")}`;
  return `${(ms / 1000).toFixed(1)} s`;
}

export const stillness = matchMedia("(prefers-reduced-motion: reduce)");
