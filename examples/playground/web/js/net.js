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
    });
    const answer = await reply.json();
    if (reply.ok) {
      complain("");
      return answer;
    }
    complain(answer.error);
  } catch {
    complain("The playground does not answer. Does its program still run?");
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

// listen hands on what the server pushes: handlers by name. After a loss of connection the browser comes back by itself and
// gets everything anew, as "hello".
export function listen(handlers) {
  const source = new EventSource("feed");
  const status = byId("connection");
  const show = (kind, what) => {
    status.className = `pill ${kind}`;
    text(status, what);
  };
  source.addEventListener("open", () => show("good", "live"));
  source.addEventListener("error", () => show("bad", "reconnecting"));
  for (const [name, handler] of Object.entries(handlers)) {
    source.addEventListener(name, (message) => {
      const data = JSON.parse(message.data);
      if (name === "hello") ahead = data.now - Date.now();
      handler(data);
    });
  }
}
