// How a join is evaluated, as the server explains it, and what of its sources matches.

import {h, note, table} from "./dom.js";
import {count, counted, keyText} from "./format.js";

// Of a check, `looked_at` and `matching` say how many rows of each source were looked at, and match.
export function plan(explanation, {looked_at: lookedAt = null, matching = null} = {}) {
  const rows = explanation.sources.map((source, at) => [
    h("code", {class: "key"}, source.source),
    h("code", {class: "key"}, source.reads),
    lookedAt ? matches(source, lookedAt[at], matching[at]) : source.computed_by.join(", ") || "written",
    source.upkeep,
  ]);
  const columns = [
    ["source", ""],
    ["reads keys that begin with", ""],
    [lookedAt ? "matches now" : "keys are", ""],
    ["a change arrives", ""],
  ];
  const facts = [explanation.maintenance, explanation.is_unique ? "" : "several source rows may make one output row"];
  return h(
    "div",
    {class: "stack tight"},
    h("pre", {class: "join-text"}, explanation.text),
    h("p", {class: "note"}, facts.filter((fact) => fact).join("; ")),
    table(columns, rows),
    explanation.warnings.map((text) => note(text, "warn")),
    explanation.notes.map(({text}) => note(text, "warn")),
  );
}

function matches(source, lookedAt, matching) {
  const kind = source.computed_by.length ? `computed by ${source.computed_by.join(", ")}` : "";
  if (!lookedAt) return h("span", {class: "note"}, kind || "no key yet");
  const text = `${count(matching)} of ${lookedAt >= 500 ? "the first " : ""}${counted(lookedAt, "key")}`;
  return h("span", {class: matching ? "" : "note bad"}, text);
}

export function sampleRows({keys, values}) {
  if (!keys.length)
    return note("It computes no row from the first rows of its sources, or none that your role may read.");
  const cells = keys.map((key, at) => [
    h("span", {class: "key"}, keyText(key)),
    h("span", {class: "key value"}, shortened(values[at])),
  ]);
  return h(
    "div",
    {class: "stack tight"},
    h("h3", {}, "Rows that it computes"),
    table(
      [
        ["", ""],
        ["", ""],
      ],
      cells,
    ),
  );
}

function shortened(value) {
  const text = typeof value === "string" ? value : keyText(value);
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}
