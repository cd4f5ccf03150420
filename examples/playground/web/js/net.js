// Orders to the server, and messages from it.

import { byId, text } from "./dom.js";

// ask sends an order. If the server refuses it, ask shows the reason and returns false.
export async function ask(method, path, body) {
  let reply;
  try {
    reply = await fetch(path, {
      method,
      headers: { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(10_000), // other tabs may use all connections that the browser allows
    });
    const answer = await reply.json();
    if (reply.ok) {
      complain("");
      return answer;
    }
    complain(answer.error);
  } catch {
    complain("The playground does not answer. Check that its program still runs, and close other tabs of it.");
  }
  return false;
}

export function complain(what) {
  const problem = byId("problem");
  problem.hidden = what === "";
  text(problem, what);
}

// ahead is the time in ms by which the server's clock is ahead of this one.
let ahead = 0;

// now returns Unix time in ms by the server's clock.
export const now = () => Date.now() + ahead;

const HIDDEN = 5_000; // ms: a tab that is hidden for longer closes its connection, because a browser has six for a host
const SILENT = 45_000; // ms: the server sends a message at least every 20 s
const RETRY = 2_000; // ms

// listen passes the server's messages to the handlers with their names. After a lost connection it reconnects, and gets
// the whole state again as "hello".
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
      // A browser reconnects by itself, except after an answer that is not a feed.
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
