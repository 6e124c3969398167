// Durable views and lakes that the settings name, with their stages and ages.

import {ask, reasonOf} from "./api.js";
import {card, h, note, show, table} from "./dom.js";
import {bytes, count, counted, seconds} from "./format.js";

const PARTS = [
  ["view", ""],
  ["from", ""],
  ["state", ""],
  ["age", "number"],
  ["changes", "number"],
  ["manager", ""],
];
const STAGES = [
  ["stage", ""],
  ["runs", "number"],
  ["rows", "number"],
  ["size", "number"],
];
const NONE = "Name files of views in the setting console_views, and lakes in console_lakes: they show here.";
const GOOD = {follows: "good", begins: "warn", free: "warn", waits: "bad"};

export function viewsAndLakes() {
  const place = h("div", {class: "stack"});
  async function read() {
    try {
      const {views, lakes} = await ask("/v1/views");
      show(place, views.length + lakes.length ? [...views.map(viewsOf), ...lakes.map(lakeOf)] : note(NONE));
    } catch (error) {
      show(place, note(reasonOf(error), "bad"));
    }
  }
  read();
  const again = h("button", {type: "button", class: "plain", onclick: read}, "Look again");
  return card("Views and lakes", place, h("div", {}, again));
}

function viewsOf({file, parts, problem}) {
  return h(
    "div",
    {},
    h("h3", {class: "key"}, file),
    problem ? note(problem, "bad") : table(PARTS, parts.map(lineOf), "cards"),
  );
}

function lineOf(part) {
  return [
    h("strong", {}, part.view),
    h("span", {class: "key"}, part.first || "the first key"),
    stateOf(part),
    part.age_s === null ? "–" : seconds(part.age_s),
    count(part.changes),
    part.owner || "–",
  ];
}

function stateOf({state, trouble, unfit_example: unfit}) {
  return h("span", {title: trouble || unfit}, h("span", {class: `dot ${GOOD[state] ?? ""}`}), state);
}

function lakeOf({lake, status, problem}) {
  const told = status && [
    note(
      `SCU ${status.scu}; the authority has SCU ${status.authority_scu} ` +
        `and is ${seconds(status.authority_age_s)} old; ` +
        `${counted(status.worker_count, "worker")}, ${counted(status.reader_count, "reader")}.`,
    ),
    table(
      STAGES,
      Object.values(status.stages).map((one) => [
        one.stage,
        count(one.run_count),
        count(one.row_count),
        bytes(one.size_bytes),
      ]),
    ),
  ];
  return h("div", {}, h("h3", {class: "key"}, lake), ...(told ?? [note(problem, "bad")]));
}
