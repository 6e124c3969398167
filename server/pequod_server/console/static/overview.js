// Live figures.

import {card, h, head, level, note, show, table} from "./dom.js";
import {bytes, count, counted, keyText, rate, seconds} from "./format.js";
import {binaryRoof, plot} from "./plot.js";
import {databases, followers} from "./sources.js";
import {isWhole, listen, state} from "./statistics.js";

const KINDS = {
  stored_bytes: "written keys",
  loaded_bytes: "loaded from databases",
  row_bytes: "computed rows",
  context_bytes: "contexts",
  updater_bytes: "subscriptions",
  log_bytes: "changes that wait",
  state_bytes: "aggregates",
  watch_bytes: "watches",
  index_bytes: "indexes",
};

const PARTIAL =
  "Operations, times, memory and evictions are not shown to your role: it lacks the right read or admin on all keys.";

export const overview = {name: "overview", title: "Overview", enter};

function enter(root) {
  const plots = [
    plot(
      "Operations a second",
      [
        {name: "reads", of: (look) => look.reads},
        {name: "writes", of: (look) => look.writes},
      ],
      rate,
    ),
    plot(
      "Time of a call",
      ["p50", "p95", "p99"].map((name) => ({name, of: (look) => look[name]})),
      seconds,
    ),
    plot(
      "Memory",
      [
        {name: "data", of: (look) => look.memory},
        {name: "process", of: (look) => look.process},
      ],
      bytes,
      binaryRoof,
    ),
    plot("Evictions a second", [{name: "evictions", of: (look) => look.evictions}], rate),
  ];
  const tiles = h("dl", {class: "tiles"}),
    rest = h("div", {class: "grid"}),
    whole = h(
      "div",
      {class: "grid"},
      plots.map(({element}) => element),
    ),
    partial = note(PARTIAL);
  partial.hidden = true;
  show(
    root,
    head("Overview", "What this server does now."),
    partial,
    tiles,
    whole,
    rest,
  );
  function draw({now, looks, fault}) {
    if (!now) {
      show(tiles, fault ? note(fault, "bad") : note("Asking the server …"));
      return;
    }
    show(
      tiles,
      figures(now, looks.at(-1)).map(([name, figure, more]) =>
        h("div", {class: "card tile"}, h("dt", {}, name), h("dd", {}, figure), h("small", {}, more)),
      ),
    );
    whole.hidden = !isWhole(now);
    partial.hidden = isWhole(now);
    if (isWhole(now)) for (const one of plots) one.draw(looks);
    show(rest, tables(now), isWhole(now) ? memory(now) : null, databases(now), followers(now));
  }
  draw(state);
  return listen(draw);
}

function figures(now, last) {
  const keys = now.tables.reduce((sum, one) => sum + one.keys, now.loose_keys);
  const rows = now.joins.reduce((sum, one) => sum + one.rows, 0);
  const held = [
    ["Written keys", count(keys), counted(now.tables.length, "table")],
    ["Computed rows", count(rows), counted(now.joins.length, "join")],
  ];
  if (!isWhole(now)) return held.map((one) => seen(...one));
  const {memory} = now;
  const operations = last && last.reads !== null ? last.reads + last.writes : null;
  return [
    [
      "Operations",
      operations === null ? "–" : `${rate(operations)}/s`,
      last ? `${rate(last.reads ?? 0)} read, ${rate(last.writes ?? 0)} write` : "",
    ],
    ["99 % of calls", last?.p99 ? seconds(last.p99) : "–", last?.p50 ? `half: ${seconds(last.p50)}` : "no calls now"],
    ...held,
    ["Data", bytes(memory.total_bytes), memory.limit_bytes ? `of ${bytes(memory.limit_bytes)}` : "no limit"],
    [
      "Evictions",
      count(memory.evictions),
      memory.refusals ? counted(memory.refusals, "refusal") : "since the start",
    ],
  ];
}

// A figure of the tables or joins that the reader's role may see.
function seen(name, figure, number) {
  const isNone = number.startsWith("0 ");
  return [name, isNone ? "–" : figure, isNone ? "not shown to your role" : `of ${number} that your role sees`];
}

function tables(now) {
  const all = [
    ...now.joins.map((one) => [h("a", {href: `#/joins`}, `join ${one.join}`), one.rows, one.key_bytes]),
    ...now.tables.map((one) => [
      h(
        "a",
        {class: "key", href: `#/keys?prefix=${encodeURIComponent(`${keyText(one.table)}|`)}`},
        `${keyText(one.table)}|`,
      ),
      one.keys,
      one.key_bytes + one.value_bytes,
    ]),
  ].sort((one, other) => other[2] - one[2]);
  const most = all[0]?.[2] || 1;
  const shown = all.slice(0, 12).map(([name, rows, size]) => [name, count(rows), bytes(size), level(size / most)]);
  return card(
    "By table and join",
    all.length
      ? table(
          [
            ["", ""],
            ["rows", "number"],
            ["bytes", "number"],
            ["", "bar-cell"],
          ],
          shown,
        )
      : note(isWhole(now) ? "There are no keys and no joins yet." : "Your role sees no table and no join."),
    all.length > 12 ? note(`and ${all.length - 12} more`) : null,
  );
}

function memory(now) {
  const kinds = Object.entries(KINDS)
    .map(([field, text]) => [text, now.memory[field] ?? 0])
    .filter(([, size]) => size);
  const most = Math.max(...kinds.map(([, size]) => size), 1);
  return card(
    "Memory by kind",
    kinds.length
      ? table(
          [
            ["", ""],
            ["bytes", "number"],
            ["", "bar-cell"],
          ],
          kinds.map(([text, size]) => [text, bytes(size), level(size / most)]),
        )
      : note("Nothing is held yet."),
  );
}
