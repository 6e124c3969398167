// The map of the cluster, who follows whom, and what is behind the server and before it.

import {ask, reasonOf} from "./api.js";
import {card, h, head, note, show, table} from "./dom.js";
import {keyText} from "./format.js";
import {databases, followers} from "./sources.js";
import {listen, state} from "./statistics.js";
import {viewsAndLakes} from "./views.js";

const GOOD = {ready: "good", joining: "warn", draining: "warn"};

export const cluster = {name: "cluster", title: "Cluster", enter};

function enter(root) {
  const map = h("div", {class: "stack"});
  const around = h("div", {class: "grid"});
  async function read() {
    try {
      const told = await ask("/v1/cluster");
      show(map, told.map ? mapOf(told) : card("Map", note("This server belongs to no cluster.")));
    } catch (error) {
      show(map, note(reasonOf(error), "bad"));
    }
  }
  function draw({now}) {
    if (now) show(around, databases(now), followers(now));
  }
  show(root, head("Cluster", "Servers, and which keys are whose."), map, around, viewsAndLakes());
  read();
  draw(state);
  return listen(draw);
}

function mapOf({map, servers}) {
  const homes = servers.filter((one) => one.roles.includes("home"));
  const computes = servers.filter((one) => one.roles.includes("compute"));
  return h(
    "div",
    {class: "stack"},
    card(`${map.cluster}, version ${map.version} of its map`, serversOf(map, servers)),
    card(
      "Who follows whom",
      homes.length ? follows(homes, computes) : note("No home is in this cluster: its computes read a database."),
    ),
    map.home_ranges.length ? card("Whose keys", rangesOf(map)) : null,
  );
}

function serversOf(map, servers) {
  const columns = [
    ["server", ""],
    ["roles", ""],
    ["group", ""],
    ["state", ""],
    ["map", "number"],
  ];
  const rows = servers.map((one) => [
    h(
      "span",
      {},
      h("strong", {}, one.id),
      " ",
      h("span", {class: "key note"}, one.address),
      one.zone ? ` ${one.zone}` : "",
    ),
    one.roles.join(", "),
    one.group || "–",
    h("span", {}, h("span", {class: `dot ${GOOD[one.state] ?? ""}`}), one.state),
    mapOfServer(one.map_version, map.version),
  ]);
  return table(columns, rows, "cards");
}

function mapOfServer(version, present) {
  if (!version) return "not known here";
  return version === present ? "present" : `version ${version}`;
}

// Each compute follows each group of homes.
function follows(homes, computes) {
  const groups = [...new Set(homes.map((one) => one.group))];
  const chips = (some) =>
    h(
      "div",
      {class: "chips"},
      some.map((one) => h("span", {class: "tag"}, one.id)),
    );
  const lines = groups.map((group) => [
    h("span", {}, h("strong", {}, group), chips(homes.filter((one) => one.group === group))),
    "→",
    computes.length ? chips(computes) : "no compute",
  ]);
  return table(
    [
      ["home group", ""],
      ["", ""],
      ["computes that follow it", ""],
    ],
    lines,
  );
}

function rangesOf(map) {
  const text = (key) => h("code", {class: "key"}, keyText(key));
  return table(
    [
      ["from", ""],
      ["up to", ""],
      ["home group", ""],
    ],
    map.home_ranges.map((one) => [
      one.first ? text(one.first) : "the first key",
      one.last === undefined ? "the end" : text(one.last),
      one.moves_to ? `${one.group} → ${one.moves_to}` : one.group,
    ]),
  );
}
