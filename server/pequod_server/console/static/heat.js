// The groups of keys that the server's processor time goes to, and the servers that read them.

import {card, h, level, note, table} from "./dom.js";
import {count, keyText, rate} from "./format.js";
import {isWhole} from "./statistics.js";

const SHOWN = 10;
// Below this part of a core a group is not hot.
const LEAST = 0.001;

export function hotGroups(now) {
  const groups = (now.heat?.groups ?? []).filter((one) => one.cores >= LEAST).slice(0, SHOWN);
  if (!groups.length) {
    const whole = "No group of keys takes a thousandth of a core.";
    return card("Processor time", note(isWhole(now) ? whole : "Your role sees no group that is hot."));
  }
  const all = now.heat.cores;
  const rows = groups.map((one) => [
    h(
      "span",
      {},
      h("a", {class: "key", href: `#/keys?prefix=${encodeURIComponent(keyText(one.group))}`}, keyText(one.group)),
      level(one.cores / (all || groups[0].cores)),
    ),
    all ? `${count((100 * one.cores) / all)} %` : "–",
    one.cores.toFixed(3),
    `${rate(one.reads)}/s`,
    `${rate(one.writes)}/s`,
    one.read_at.length ? one.read_at.join(", ") : "here",
  ]);
  const columns = [
    ["", ""],
    ["share", "number"],
    ["of a core", "number"],
    ["reads", "number"],
    ["writes", "number"],
    ["read at", ""],
  ];
  return card("Processor time", table(columns, rows, "cards"));
}
