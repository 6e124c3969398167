// What the next read of a range has to do, as the server explains it; nothing is computed for that.

import {ask, reasonOf} from "./api.js";
import {h, note, show, table} from "./dom.js";
import {count, counted, keyText, seconds} from "./format.js";

// Takes a function that returns the range as a query.
export function rangePlan(range) {
  const place = h("div", {class: "stack tight"});
  async function read() {
    if (!element.open) return;
    try {
      show(place, explained((await ask(`/v1/explain?${range()}`)).range));
    } catch (error) {
      show(place, note(reasonOf(error), "bad"));
    }
  }
  const summary = h("summary", {}, "What the next read has to do");
  const element = h("details", {class: "card", ontoggle: read}, summary, place);
  return {element, read};
}

function explained({stored_keys: stored, freshness, joins, dropped, notes}) {
  return [
    h("p", {}, `${counted(stored, "written key")}; `, freshness),
    joins.map(covered),
    dropped.length ? goneParts(dropped) : null,
    notes.map(({text}) => note(text, "warn")),
  ].flat();
}

function covered({join, next_read: next, parts}) {
  const rows = parts
    .slice(0, 20)
    .map((one) => [span(one.first, one.last), one.state, count(one.rows), count(one.log_entries)]);
  const columns = [
    ["range", ""],
    ["state", ""],
    ["rows", "number"],
    ["changes that wait", "number"],
  ];
  const more = parts.length > 20 ? note(`and ${counted(parts.length - 20, "more part")}`) : null;
  const shown = table(columns, rows, "cards");
  return h("div", {class: "stack tight"}, h("h3", {}, `Join ${join}`), h("p", {}, next), shown, more);
}

function goneParts(dropped) {
  const rows = dropped.map((one) => [one.name, span(one.first, one.last), one.reason, `${seconds(one.ago_s)} ago`]);
  const columns = [
    ["", ""],
    ["range", ""],
    ["why", ""],
    ["when", "number"],
  ];
  return h("div", {class: "stack tight"}, h("h3", {}, "Dropped lately"), table(columns, rows));
}

function span(first, last) {
  return h("code", {class: "key"}, `${keyText(first)} … ${last === undefined ? "" : keyText(last)}`);
}
