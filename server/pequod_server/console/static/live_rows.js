// The rows of a range, which change as they do at the server.

import {card, h, note, show} from "./dom.js";
import {follow} from "./events.js";
import {counted, keyText} from "./format.js";

// Rows that are drawn, from the end of the range that is on top.
const SHOWN = 200;
const TEXT_MAX = 300;

export function liveRows(query, {title = "", isReversed = false} = {}) {
  const rows = new Map();
  const reverse = h("input", {type: "checkbox", checked: isReversed, onchange: () => draw()});
  const body = h("tbody"),
    said = h("div", {role: "status"}),
    summary = h("p", {class: "note"}, "Connecting …");
  let changes = 0,
    fresh = new Set(),
    isDue = false,
    isReady = false;

  function take(kind, members) {
    if (kind === "reset") {
      rows.clear();
      isReady = false;
    }
    for (const [key, value] of members.rows ?? []) rows.set(keyText(key), value);
    for (const {key, new: value} of members.changes ?? []) {
      changes++;
      if (value === null) rows.delete(keyText(key));
      else {
        rows.set(keyText(key), value);
        fresh.add(keyText(key));
      }
    }
    isReady ||= kind === "ready";
    if (!isDue) requestAnimationFrame(draw);
    isDue = true;
  }
  function draw() {
    isDue = false;
    if (!isReady) return;
    const keys = [...rows.keys()].sort(byBytes);
    if (reverse.checked) keys.reverse();
    show(
      body,
      keys.slice(0, SHOWN).map((key) => line(key, rows.get(key), fresh.has(key))),
    );
    fresh = new Set();
    const part = keys.length > SHOWN ? `, ${SHOWN} of them shown` : "";
    summary.textContent = `${counted(rows.size, "row")}${part}; ${counted(changes, "change")} since you came.`;
  }
  const tell = (fault) => {
    summary.hidden = Boolean(fault) && !isReady;
    show(said, fault ? note(fault, "warn") : null);
  };
  const stop = follow(query, take, tell);
  const element = card(
    title,
    h(
      "div",
      {class: "stack tight"},
      h("div", {class: "row spread"}, summary, h("label", {class: "check"}, reverse, "Last keys first")),
      said,
      h("table", {class: "rows live"}, body),
    ),
  );
  return {element, stop};
}

function line(key, value, isNew) {
  const text = typeof value === "string" ? value : keyText(value);
  const shown = text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text;
  return h("tr", {class: isNew ? "new" : null}, h("td", {class: "key"}, key), h("td", {class: "key value"}, shown));
}

// The order of the server: by bytes, which is that of code points.
function byBytes(one, other) {
  const [mine, its] = [[...one], [...other]];
  for (let at = 0; at < mine.length && at < its.length; at++) {
    if (mine[at] !== its[at]) return mine[at].codePointAt(0) - its[at].codePointAt(0);
  }
  return mine.length - its.length;
}
