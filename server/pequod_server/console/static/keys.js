// A browser of keys: by tables, prefixes and ranges, a page at a time.

import {ask, reasonOf} from "./api.js";
import {card, field, h, head, note, show} from "./dom.js";
import {keyQuery, keyText} from "./format.js";
import {keyRows} from "./key_rows.js";
import {keyWriter} from "./key_writer.js";
import {rangePlan} from "./range_plan.js";
import {listen, state} from "./statistics.js";

const PAGE = 50;
const CHIPS = 24;

export const keys = {name: "keys", title: "Keys", enter};

function enter(root, query) {
  const form = new RangeForm(query, begin);
  const crumbs = h("div", {class: "crumbs"});
  const result = h("div", {class: "stack"});
  const chips = h("div", {class: "chips"});
  const plan = rangePlan(() => form.range());
  // The paths of the pages up to the present one.
  let pages = [];

  function begin() {
    try {
      pages = [`/v1/scan?${form.range()}&limit=${PAGE}`];
    } catch (error) {
      show(crumbs);
      return show(result, note(reasonOf(error), "bad"));
    }
    show(crumbs, form.isRange ? null : trail(form.first, (prefix) => form.goTo(prefix)));
    read();
    plan.read();
  }
  async function read() {
    try {
      const page = await ask(pages.at(-1));
      show(result, page.rows.length ? keyRows(page.rows) : nothing(form), pager(page.next));
    } catch (error) {
      show(result, note(reasonOf(error), "bad"));
    }
  }
  function turn(next) {
    if (next) pages.push(next);
    else pages.pop();
    read();
  }
  function pager(next) {
    if (pages.length === 1 && next === null) return null;
    const button = (text, page, disabled) =>
      h("button", {class: "plain", type: "button", disabled, onclick: () => turn(page)}, text);
    const back = button("Back", null, pages.length < 2);
    return h("div", {class: "row"}, back, button("Next", next, next === null), note(`page ${pages.length}`));
  }
  function suggest({now}) {
    const names = now ? tableNames(now).slice(0, CHIPS) : [];
    if (chips.childElementCount === names.length) return;
    const chip = (name) => h("button", {type: "button", class: "chip", onclick: () => form.goTo(name)}, name);
    show(chips, names.map(chip));
  }

  show(
    root,
    head("Keys", "Reading a computed range computes what is missing."),
    card("", h("div", {class: "stack"}, form.element, chips)),
    card("", h("div", {class: "stack"}, crumbs, result)),
    plan.element,
    keyWriter(begin),
  );
  begin();
  suggest(state);
  return listen(suggest);
}

// Asks for a prefix, or for a range.
class RangeForm {
  constructor(query, begin) {
    this._begin = begin;
    this._first = field("first", {value: query.get("first") ?? query.get("prefix") ?? "", placeholder: "t|ann|"});
    this._last = field("last", {value: query.get("last") ?? "", placeholder: "the end"});
    this._box = h("input", {type: "checkbox", checked: query.has("first"), onchange: () => this._settle()});
    this._name = h("span");
    this._end = h("label", {class: "wide"}, "Up to, without it", this._last);
    const submit = (event) => {
      event.preventDefault();
      begin();
    };
    this.element = h(
      "form",
      {onsubmit: submit},
      h("label", {class: "wide"}, this._name, this._first),
      this._end,
      h("button", {}, "Show"),
      h("label", {class: "check"}, this._box, "A range"),
    );
    this._settle();
  }

  get isRange() {
    return this._box.checked;
  }

  get first() {
    return this._first.value;
  }

  goTo(prefix) {
    this._first.value = prefix;
    this._box.checked = false;
    this._settle();
    this._begin();
  }

  range() {
    const last = this._last.value ? `&last=${keyQuery(this._last.value)}` : "";
    return this.isRange ? `first=${keyQuery(this.first)}${last}` : `prefix=${keyQuery(this.first)}`;
  }

  _settle() {
    this._end.hidden = !this.isRange;
    this._name.textContent = this.isRange ? "From" : "Keys that begin with";
  }
}

function tableNames(now) {
  const computed = now.joins.map((one) => `${one.join.replace(/\.\d+$/, "")}|`);
  return [...new Set([...now.tables.map((one) => `${keyText(one.table)}|`), ...computed])].sort();
}

// The parts of a prefix, each of which leads to its keys.
function trail(prefix, goTo) {
  const parts = prefix.split(/(?<=\|)/).filter((part) => part);
  const step = (text, at) => h("button", {type: "button", onclick: () => goTo(parts.slice(0, at).join(""))}, text);
  return [step("all", 0), ...parts.flatMap((part, at) => ["›", step(part, at + 1)])];
}

// That a range has no rows, and why, as the server tells it.
function nothing(form) {
  if (!form.first) return note("There are no keys yet.");
  const reasons = h("ul", {class: "note"});
  ask(`/v1/explain?${form.range()}`).then(
    ({range}) =>
      show(
        reasons,
        range.notes.map((one) => h("li", {}, one.text)),
      ),
    () => {},
  );
  return h("div", {class: "stack tight"}, note("No key is there."), reasons);
}
