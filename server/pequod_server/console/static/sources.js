// What is behind a server, and who follows it.

import {card, h, note, table} from "./dom.js";
import {count, seconds} from "./format.js";

const NONE = "No database, lake or home is behind this server: clients write all its keys.";

export function databases(now) {
  if (!now.databases.length) return card("Databases, lakes and homes", note(NONE));
  const rows = now.databases.map((one) => [
    h("span", {}, one.name || "the database", " ", h("span", {class: "tag"}, one.mode)),
    h("span", {title: one.error}, h("span", {class: `dot ${one.state === "ok" ? "good" : "bad"}`}), one.state),
    one.lag === undefined ? "–" : count(one.lag),
    one.age_s === undefined ? "–" : seconds(one.age_s),
    count(one.loaded_ranges),
  ]);
  const columns = [
    ["", ""],
    ["state", ""],
    ["lag", "number"],
    ["age", "number"],
    ["loaded ranges", "number"],
  ];
  return card("Databases, lakes and homes", table(columns, rows));
}

export function followers(now) {
  if (!now.peers.length) return null;
  const rows = now.peers.map((one) => [
    h("span", {class: "key"}, one.id || one.address),
    count(one.lag_events),
    one.subscriptions === undefined ? "–" : count(one.subscriptions),
  ]);
  return card(
    "Computes that follow this home",
    table(
      [
        ["", ""],
        ["events behind", "number"],
        ["ranges", "number"],
      ],
      rows,
    ),
  );
}
