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
import {isWhole, listen, look} from "./statistics.js";
import {watch} from "./watch.js";

const PLACES = [overview, joins, keys, watch, playground, contexts, slow, cluster, start];
const main = document.getElementById("main");
const nav = document.getElementById("places");
let leave = () => {};
// Whether a token is asked for: until it is given, there are no places.
let isStranger = false;

function go() {
  if (isStranger) return;
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

listen(({now, fault, status}) => {
  const text = fault || (now ? `Version ${now.version}` : "");
  const [kind, word] = fault ? faultOf(status) : ["good", text];
  show(document.getElementById("server"), h("span", {class: `dot ${kind}`}), word);
  document.getElementById("server").title = text;
});
// A server that refuses has been reached.
function faultOf(status) {
  if (status === 401) return ["warn", "Asks for a token"];
  return ["bad", status ? "Refuses" : "Not reached"];
}

// A server that is seen to be empty greets with an example.
let isGreeted = Boolean(location.hash);
listen(({now}) => {
  if (!now || isGreeted) return;
  isGreeted = true;
  if (isWhole(now) && !now.joins.length && !now.tables.length && !now.loose_keys && !now.databases.length)
    location.hash = "#/start";
});
addEventListener("hashchange", () => {
  go();
  main.focus({preventScroll: true});
  scrollTo(0, 0);
});
addEventListener("stranger", ({detail}) => {
  if (isStranger) return;
  isStranger = true;
  leave();
  leave = () => {};
  show(nav);
  document.title = "Pequod";
  askForToken(main, detail, () => {
    isStranger = false;
    look();
    go();
  });
});
go();
look();
