// The page: passes the server's messages to its sections.

import { listen } from "./net.js";
import * as fleet from "./fleet.js";
import * as cards from "./cards.js";
import * as boundary from "./boundary.js";

listen({
  hello(all) {
    fleet.begin(all.fleet);
    for (const card of all.cards) cards.update(card, true);
    boundary.update(all.boundary);
    document.documentElement.dataset.ready = "yes";
  },
  fleet: fleet.update,
  sample: fleet.sample,
  flight: fleet.flight,
  event: fleet.event,
  card: (card) => cards.update(card, false),
  boundary: boundary.update,
});
