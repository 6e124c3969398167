// Rows of keys and values, each of which opens.

import {ask, reasonOf} from "./api.js";
import {h, show} from "./dom.js";
import {keyQuery, keyText, seconds, valueText} from "./format.js";

const SHOWN = 160;

export function keyRows(rows) {
  const heads = ["key", "value"].map((name) => h("th", {scope: "col"}, name));
  return h("table", {class: "rows"}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows.flatMap(linesOf)));
}

function linesOf([key, value]) {
  const details = h("tr", {hidden: true}, h("td", {colspan: 2, class: "details"}));
  const text = typeof value === "string" ? value : keyText(value);
  const opener = h("button", {type: "button", class: "open-row", "aria-expanded": "false"}, keyText(key));
  const line = h(
    "tr",
    {},
    h("td", {class: "key"}, opener),
    h("td", {class: "key value"}, text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text),
  );
  opener.addEventListener("click", () => {
    details.hidden = !details.hidden;
    line.classList.toggle("open", !details.hidden);
    opener.setAttribute("aria-expanded", String(!details.hidden));
    if (!details.hidden) open(details.firstChild, keyText(key), value);
  });
  return [line, details];
}

async function open(cell, key, value) {
  const prefix = key.slice(0, key.lastIndexOf("|") + 1) || key;
  const life = h("span", {}, "");
  const watching = h("a", {href: `#/watch?prefix=${encodeURIComponent(prefix)}`}, `Watch ${prefix}`);
  show(cell, h("pre", {}, valueText(value)), h("div", {class: "row"}, life, watching));
  try {
    const {ttl_s} = await ask(`/v1/ttl/${keyQuery(key)}`);
    life.textContent = ttl_s === null ? "Does not expire." : `Expires in ${seconds(ttl_s)}.`;
  } catch (error) {
    life.textContent = reasonOf(error);
  }
}
