// Tables and joins, drawn from left to right: what is written on the left, what is computed from it to the right.

import {svg} from "./dom.js";
import {counted, keyText, rate} from "./format.js";
import {layers} from "./layers.js";

const TABLE = {width: 124, height: 46};
const JOIN = {width: 132, height: 46};
const STEP_X = 340;
const STEP_Y = 66;
const MARGIN = 12;

// Takes the joins, the statistics, the rates of joins by name, and what to do with the name of one that is chosen.
export function graph(joins, now, rates, choose) {
  const {tables, ofTable, ofJoin} = places(joins);
  const hottest = Math.max(1e-9, ...joins.map(({name}) => rates[name]?.hits ?? 0));
  const keys = new Map(now.tables.map((one) => [keyText(one.table), one.keys]));
  const lines = joins.flatMap((join) => {
    const heat = (rates[join.name]?.hits ?? 0) / hottest;
    const middle = ofJoin.get(join.name);
    const sources = [...new Set(join.source_tables.map(keyText))];
    const into = sources.map((name) => curve(right(ofTable.get(name), TABLE), left(middle, JOIN), heat));
    return [...into, curve(right(middle, JOIN), left(ofTable.get(keyText(join.table)), TABLE), heat)];
  });
  const nodes = tables.map((name) => tableNode(name, keys.get(name), ofTable.get(name)));
  const pills = joins.map((join) => joinNode(join, now, rates[join.name], ofJoin.get(join.name), choose));
  const all = [...ofTable.values(), ...ofJoin.values()];
  const width = Math.max(...all.map(({x}) => x)) + TABLE.width + MARGIN;
  const height = Math.max(...all.map(({y}) => y)) + TABLE.height + MARGIN;
  const drawing = svg(
    "svg",
    {class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group"},
    lines,
    nodes,
    pills,
  );
  drawing.setAttribute("aria-label", "Tables and joins");
  return drawing;
}

// Where the boxes stand: columns of tables, with the joins that compute them before them.
function places(joins) {
  const columns = layers(
    joins.map((join) => ({output: keyText(join.table), sources: join.source_tables.map(keyText)})),
  );
  const ofTable = new Map();
  const ofJoin = new Map();
  const depth = new Map(columns.flatMap((column, at) => column.map((name) => [name, at])));
  const before = columns.map((_, at) => joins.filter((join) => depth.get(keyText(join.table)) === at));
  const rows = Math.max(...columns.map((column) => column.length), ...before.map((some) => some.length));
  const y = (at, length) => MARGIN + (at + (rows - length) / 2) * STEP_Y;
  columns.forEach((column, x) =>
    column.forEach((name, at) => ofTable.set(name, {x: MARGIN + x * STEP_X, y: y(at, column.length)})),
  );
  before.forEach((some, x) => {
    const sorted = [...some].sort(
      (one, other) => ofTable.get(keyText(one.table)).y - ofTable.get(keyText(other.table)).y,
    );
    const at = MARGIN + x * STEP_X - (STEP_X - TABLE.width + JOIN.width) / 2;
    sorted.forEach((join, index) => ofJoin.set(join.name, {x: at, y: y(index, some.length)}));
  });
  return {tables: columns.flat(), ofTable, ofJoin};
}

function right({x, y}, {width, height}) {
  return {x: x + width, y: y + height / 2};
}

function left({x, y}, {height}) {
  return {x, y: y + height / 2};
}

function curve(from, to, heat) {
  const bend = Math.max(28, Math.abs(to.x - from.x) / 2);
  const line = `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x} ${to.y}`;
  return svg("path", {
    class: heat > 0.05 ? "edge hot" : "edge",
    d: line,
    "stroke-width": (1.2 + 3.5 * heat).toFixed(1),
  });
}

function box({x, y}, {width, height}, kind, name, text, properties = {}) {
  return svg(
    "g",
    {class: kind, transform: `translate(${x} ${y})`, ...properties},
    svg("title", {}, name),
    svg("rect", {width, height, rx: kind === "table-box" ? 8 : height / 2}),
    svg("text", {x: width / 2, y: 19, class: "name"}, name.length > 15 ? `${name.slice(0, 14)}…` : name),
    svg("text", {x: width / 2, y: 35, class: "more"}, text),
  );
}

function tableNode(name, keys, place) {
  const link = svg("a", {href: `#/keys?prefix=${encodeURIComponent(`${name}|`)}`});
  link.append(box(place, TABLE, "table-box", `${name}|`, keys === undefined ? "computed" : counted(keys, "key")));
  return link;
}

function joinNode(join, now, rates, place, choose) {
  const {rows = 0} = now.joins.find((one) => one.join === join.name) ?? {};
  const heat = rates?.hits ? `${rate(rates.hits)} reads/s` : counted(rows, "row");
  const go = () => choose(join.name);
  const onkeydown = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), go());
  const properties = {role: "button", tabindex: 0, "aria-label": `join ${join.name}`, onclick: go, onkeydown};
  return box(place, JOIN, "join-box", join.name, `${join.maintenance.split(" ")[0]} · ${heat}`, properties);
}
