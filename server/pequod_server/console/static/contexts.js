// The parts of joins' outputs that are read most, and those that are largest.

import {card, h, head, level, note, show, table} from "./dom.js";
import {count, keyText, rate} from "./format.js";
import {hotGroups} from "./heat.js";
import {isWhole, listen, state} from "./statistics.js";

const SHOWN = 20;

export const contexts = {name: "contexts", title: "Contexts", enter};

function enter(root) {
  const place = h("div", {class: "grid"});
  // The hits of contexts at the look before, and when that was.
  let before = {at: 0, hits: new Map()};
  let rates = new Map();
  function draw({now}) {
    if (!now) return;
    if (now.at !== before.at) {
      const hits = new Map(all(now, "hottest").map((one) => [one.prefix, one.hits]));
      rates = new Map([...hits].map(([prefix, number]) => [prefix, since(before, prefix, number, now.at)]));
      before = {at: now.at, hits};
    }
    const hot = all(now, "hottest").sort(
      (one, other) => (rates.get(other.prefix) ?? 0) - (rates.get(one.prefix) ?? 0) || other.hits - one.hits,
    );
    const large = all(now, "largest").sort((one, other) => other.rows - one.rows);
    const none = isWhole(now) ? "Nothing is materialised yet." : "Your role sees nothing that is materialised.";
    show(
      place,
      list(
        "Hot",
        none,
        hot,
        ["reads now", "fresh reads", "rows"],
        (one) => [speed(rates.get(one.prefix)), count(one.hits), count(one.rows)],
        (one) => one.hits,
      ),
      list(
        "Large",
        none,
        large,
        ["rows", "fresh reads"],
        (one) => [count(one.rows), count(one.hits)],
        (one) => one.rows,
      ),
      hotGroups(now),
    );
  }
  show(
    root,
    head("Contexts", "Parts of what joins compute that reads have materialised, such as single timelines."),
    place,
  );
  draw(state);
  return listen(draw);
}

function all(now, which) {
  return now.joins.flatMap((join) =>
    join[which].map((one) => ({...one, prefix: keyText(one.prefix), join: join.join})),
  );
}

function since(before, prefix, hits, at) {
  const earlier = before.hits.get(prefix);
  return earlier === undefined || earlier > hits ? null : ((hits - earlier) / (at - before.at)) * 1000;
}

function speed(number) {
  return number === null || number === undefined ? "–" : `${rate(number)}/s`;
}

function list(title, none, some, columns, cells, size) {
  if (!some.length) return card(title, note(none));
  const most = Math.max(1, ...some.map(size));
  const rows = some
    .slice(0, SHOWN)
    .map((one) => [
      h(
        "span",
        {},
        h("a", {class: "key", href: `#/keys?prefix=${encodeURIComponent(one.prefix)}`}, one.prefix),
        level(size(one) / most),
      ),
      ...cells(one),
    ]);
  return card(title, table([["", ""], ...columns.map((name) => [name, "number"])], rows));
}
