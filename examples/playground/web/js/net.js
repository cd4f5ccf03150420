// Orders to the server, and what it pushes.

import { byId, text } from "./dom.js";

// ask sends an order. What the server says against it is shown, and false returned.
export async function ask(method, path, body) {
  let reply;
  try {
    reply = await fetch(path, {
      method,
      headers: { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(10_000), // other tabs may have all connections that a browser allows
    });
    const answer = await reply.json();
    if (reply.ok) {
      complain("");
      return answer;
    }
    complain(answer.error);
  } catch {
    complain("The playground does not answer. Does its program still run? Are many of its tabs open?");
  }
  return false;
}

export function complain(what) {
  const problem = byId("problem");
  problem.hidden = what === "";
  text(problem, what);
}

// ahead is how far the server's clock is ahead of ours, in ms.
let ahead = 0;

// now is Unix time in ms as the server sees it.
export const now = () => Date.now() + ahead;

const HIDDEN = 5_000; // ms: a tab that nobody sees for so long lets go of its connection; a browser has six for a host
const SILENT = 45_000; // ms: the server says something every 20 s
const RETRY = 2_000; // ms

// listen hands on what the server pushes: handlers by name. After a loss of connection it comes back, and gets everything
// anew, as "hello".
export function listen(handlers) {
  const status = byId("connection");
  const show = (kind, what) => {
    status.className = `pill ${kind}`;
    text(status, what);
  };
  let source = null;
  let heard = 0;
  let later = 0; // a timer

  const close = () => {
    clearTimeout(later);
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    heard = performance.now();
    const mine = source = new EventSource("feed");
    mine.addEventListener("open", () => show("good", "live"));
    mine.addEventListener("error", () => {
      if (mine !== source) return;
      show("bad", "reconnecting");
      // A browser comes back by itself, but not after an answer that is none.
      if (mine.readyState === EventSource.CLOSED) {
        close();
        if (!document.hidden) later = setTimeout(open, RETRY);
      }
    });
    for (const [name, handler] of Object.entries({ alive() {}, ...handlers })) {
      mine.addEventListener(name, (message) => {
        heard = performance.now();
        const data = JSON.parse(message.data);
        if (name === "hello") ahead = data.now - Date.now();
        handler(data);
      });
    }
  };
  setInterval(() => {
    if (source && performance.now() - heard > SILENT) open();
  }, SILENT / 3);
  const seen = () => {
    clearTimeout(later);
    if (document.hidden) later = setTimeout(close, HIDDEN);
    else if (!source) open();
  };
  document.addEventListener("visibilitychange", seen);
  open();
  seen();
}
