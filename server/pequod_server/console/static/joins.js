// The graph of joins, and how each of them is evaluated and kept.

import {ask, reasonOf} from "./api.js";
import {card, h, head, note, show, table} from "./dom.js";
import {count, keyText, rate, seconds} from "./format.js";
import {graph} from "./graph.js";
import {plan} from "./plan.js";
import {isWhole, listen, look, state} from "./statistics.js";

export const joins = {name: "joins", title: "Joins", enter};

function enter(root, query) {
  const drawing = h("div", {class: "scroll"});
  const list = h("div");
  const details = h("div", {class: "stack"});
  let installed = [];
  let isGone = false;
  // Whether the server has told its joins.
  let isTold = false;

  function draw({now, looks}) {
    if (!now) return;
    const rates = looks.at(-1)?.joins ?? {};
    if (installed.length !== now.joins.length) refresh();
    show(drawing, installed.length ? graph(installed, now, rates, open) : isTold ? note(none(now)) : null);
    show(list, installed.length ? figures(now, rates, open) : null);
  }
  async function refresh() {
    try {
      const told = (await ask("/v1/joins")).joins;
      isTold = true;
      if (isGone || told.length === installed.length) return;
      installed = told;
      draw(state);
    } catch (error) {
      show(details, note(reasonOf(error), "bad"));
    }
  }
  async function open(name) {
    try {
      const {join} = await ask(`/v1/explain?join=${encodeURIComponent(name)}`);
      const join_ = installed.find((one) => one.name === name);
      show(
        details,
        opened(join, join_, () => drop(name)),
      );
      details.scrollIntoView({block: "nearest", behavior: "smooth"});
    } catch (error) {
      show(details, note(reasonOf(error), "bad"));
    }
  }
  async function drop(name) {
    if (!confirm(`Drop the join ${name} with its rows? Readers see them no more.`)) return;
    try {
      await ask(`/v1/joins/${encodeURIComponent(name)}`, {method: "DELETE"});
      show(details, note(`${name} is dropped.`, "good"));
      look();
    } catch (error) {
      show(details, note(reasonOf(error), "bad"));
    }
  }

  const more = h("a", {class: "button plain", href: "#/playground"}, "New join");
  show(
    root,
    head("Joins", "What is computed from what. Thick lines are read most now.", more),
    card("", drawing, list),
    details,
  );
  refresh().then(() => {
    draw(state);
    if (query.get("join")) open(query.get("join"));
  });
  const stop = listen(draw);
  return () => {
    isGone = true;
    stop();
  };
}

function none(now) {
  return isWhole(now) ? "There are no joins yet." : "Your role sees no join.";
}

function opened(explanation, join, drop) {
  const prefix = `${keyText(join.table)}|`;
  const links = h(
    "div",
    {class: "row"},
    h("a", {href: `#/keys?prefix=${encodeURIComponent(prefix)}`}, `Keys of ${prefix}`),
    h("a", {href: `#/playground?text=${encodeURIComponent(join.text)}`}, "Open in the playground"),
    h("button", {type: "button", class: "plain", onclick: drop}, "Drop"),
  );
  return h("section", {class: "card stack"}, h("h2", {}, `Join ${explanation.name}`), plan(explanation), links);
}

function figures(now, rates, open) {
  const columns = [
    "join",
    "rows",
    "contexts",
    "reads that were fresh",
    "rows computed",
    "changes that wait",
    "oldest waits",
  ];
  const rows = now.joins.map((one) => [
    h("button", {type: "button", class: "open-row", onclick: () => open(one.join)}, one.join),
    count(one.rows),
    count(one.contexts),
    withRate(one.hits, rates[one.join]?.hits),
    withRate(one.rows_computed, rates[one.join]?.computed),
    count(one.log_entries),
    one.age_s ? seconds(one.age_s) : "–",
  ]);
  return table(
    columns.map((title, at) => [title, at ? "number" : ""]),
    rows,
    "cards",
  );
}

function withRate(total, now) {
  return now ? `${count(total)} (${rate(now)}/s)` : count(total);
}
