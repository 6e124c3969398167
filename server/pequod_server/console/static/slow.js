// The latest calls that took long.

import {ask, reasonOf} from "./api.js";
import {card, h, head, note, show, table} from "./dom.js";
import {count, counted, seconds} from "./format.js";

const COLUMNS = [
  ["when", ""],
  ["call", ""],
  ["time", "number"],
  ["place", ""],
  ["rows", "number"],
  ["rows computed", "number"],
];

export const slow = {name: "slow", title: "Slow", enter};

function enter(root) {
  const place = h("div", {class: "stack"});
  async function read() {
    try {
      const {slow_ms: limit, calls} = await ask("/v1/slow");
      const rule = limit
        ? `Calls and batches that took ${seconds(limit / 1000)} or longer (slow_ms).`
        : "This server takes none as slow (slow_ms is 0).";
      show(
        place,
        note(rule),
        calls.length ? table(COLUMNS, calls.map(line), "cards") : note("There were none since the start."),
      );
    } catch (error) {
      show(place, note(reasonOf(error), "bad"));
    }
  }
  const again = h("button", {type: "button", class: "plain", onclick: read}, "Look again");
  show(
    root,
    head("Slow", "The latest first, with the rows that reads had to compute meanwhile.", again),
    card("", place),
  );
  read();
}

function line(call) {
  const kinds = Object.entries(call.kinds).map(([kind, number]) => `${number} ${kind}`);
  const what = call.commands ? `batch of ${counted(call.commands, "command")}: ${kinds.join(", ")}` : call.method;
  const fault = call.failed ? `${count(call.failed)} failed` : call.code && call.code !== "OK" ? call.code : "";
  const where = [call.key || call.prefix || call.first, call.last].filter((key) => key).join(" … ");
  return [
    h("time", {title: new Date(call.at_s * 1000).toISOString()}, new Date(call.at_s * 1000).toLocaleTimeString()),
    h("span", {title: `request ${call.request_id}`}, what, fault ? h("span", {class: "tag bad"}, fault) : null),
    seconds(call.ms / 1000),
    h("span", {class: "key"}, where),
    count(call.rows),
    count(call.rows_computed),
  ];
}
