// The frame: places by the hash of the address, the state of the server, and a token if it asks for one.

import {cluster} from "./cluster.js";
import {contexts} from "./contexts.js";
import {h, show} from "./dom.js";
import {askForToken} from "./entrance.js";
import {joins} from "./joins.js";
import {keys} from "./keys.js";
import {overview} from "./overview.js";
import {playground} from "./playground.js";
import {slow} from "./slow.js";
import {start} from "./start.js";
import {listen, look} from "./statistics.js";
import {watch} from "./watch.js";

const PLACES = [overview, joins, keys, watch, playground, contexts, slow, cluster, start];
const main = document.getElementById("main");
const nav = document.getElementById("places");
let leave = () => {};

function go() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  if (name === "main") return;
  const place = PLACES.find((one) => one.name === name) ?? PLACES[0];
  leave();
  show(main);
  show(
    nav,
    PLACES.map((one) => h("a", {href: `#/${one.name}`, "aria-current": one === place ? "page" : null}, one.title)),
  );
  nav.querySelector("[aria-current]").scrollIntoView({block: "nearest", inline: "nearest"});
  document.title = `${place.title} · Pequod`;
  leave = place.enter(main, new URLSearchParams(query)) ?? (() => {});
}

listen(({now, fault}) => {
  const text = fault || (now ? `Version ${now.version}` : "");
  show(
    document.getElementById("server"),
    h("span", {class: `dot ${fault ? "bad" : "good"}`}),
    fault ? "Not reached" : text,
  );
  document.getElementById("server").title = text;
});
// A server that is seen to be empty greets with an example.
let isGreeted = Boolean(location.hash);
listen(({now}) => {
  if (!now || isGreeted) return;
  isGreeted = true;
  if (now.memory && !now.joins.length && !now.tables.length && !now.loose_keys && !now.databases.length)
    location.hash = "#/start";
});
addEventListener("hashchange", () => {
  go();
  main.focus({preventScroll: true});
  scrollTo(0, 0);
});
addEventListener("stranger", ({detail}) => {
  leave();
  leave = () => {};
  askForToken(main, detail, () => {
    look();
    go();
  });
});
go();
look();
