// A text of joins, checked as it is typed: errors with their place, or the plan, what matches now, and some rows.

import {ask, reasonOf} from "./api.js";
import {card, h, head, note, show} from "./dom.js";
import {joinEditor} from "./join_editor.js";
import {plan, sampleRows} from "./plan.js";
import {look} from "./statistics.js";

const EXAMPLES = {
  timeline: "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
  count: "karma|<author> = count vote|<author>|<id>|<voter>",
  "join over a join": "best|<user>|<poster> = check s|<user>|<poster> copy karma|<poster>",
  "newest ten": "new|<user>|<time:10> = copy p|<user>|<time> keep last 10 of <user>",
};
const QUIET_MS = 250;

export const playground = {name: "playground", title: "Playground", enter};

function enter(root, query) {
  const result = h("div", {class: "stack", role: "status"});
  const said = h("div", {role: "status"});
  const add = h("button", {type: "button", disabled: true, onclick: addJoins}, "Add to the server");
  const editor = joinEditor(query.get("text") ?? "", later);
  const examples = Object.entries(EXAMPLES).map(([name, text]) =>
    h("button", {type: "button", class: "chip", onclick: () => editor.set(text)}, name),
  );
  let timer = 0;
  let asking = new AbortController();

  function later() {
    clearTimeout(timer);
    add.disabled = true;
    timer = setTimeout(check, QUIET_MS);
  }
  async function check() {
    asking.abort();
    asking = new AbortController();
    editor.mark(null);
    if (!editor.text.trim())
      return show(result, note("Type a join, or take an example: nothing changes until you add it."));
    try {
      const body = {text: editor.text};
      const told = await ask("/v1/joins/check", {method: "POST", body, signal: asking.signal});
      editor.mark(told.problem);
      add.disabled = Boolean(told.problem) || told.joins.every((join) => join.is_installed);
      show(result, told.problem ? problem(told.problem, editor.text) : told.joins.map(checked));
    } catch (error) {
      if (error.name !== "AbortError") show(result, note(reasonOf(error), "bad"));
    }
  }
  async function addJoins() {
    try {
      const {joins} = await ask("/v1/joins", {method: "POST", body: {text: editor.text}});
      show(said, note(`The server has ${joins.map((join) => join.name).join(", ")} now.`, "good"));
      look();
      check();
    } catch (error) {
      show(said, note(reasonOf(error), "bad"));
    }
  }

  show(
    root,
    head("Playground", "Joins are checked as you type, and nothing changes until you add them."),
    card(
      "",
      h(
        "div",
        {class: "stack"},
        editor.element,
        h("div", {class: "row spread"}, h("div", {class: "chips"}, examples), add),
        said,
      ),
    ),
    result,
  );
  check();
  return () => {
    clearTimeout(timer);
    asking.abort();
  };
}

function problem({reason, hint, line, column, start, end}, text) {
  const place = line ? `Line ${line}, column ${column}: ` : "";
  const shown = line ? caret(text.split("\n")[line - 1] ?? "", column, end - start) : null;
  const more = hint ? h("p", {}, hint) : null;
  return h("div", {class: "note bad stack tight"}, h("p", {}, h("strong", {}, place + reason)), shown, more);
}

function caret(line, column, width) {
  const margin = [...line].slice(0, column - 1).map((letter) => (letter === "\t" ? "\t" : " "));
  const carets = "^".repeat(Math.max(1, Math.min(width, [...line].length - column + 1)));
  return h("div", {class: "scroll"}, h("pre", {class: "caret"}, `${line}\n${margin.join("")}${carets}`));
}

function checked(join) {
  const {name} = join.explanation;
  const tag = h("span", {class: "tag"}, join.is_installed ? "installed" : "new");
  return h(
    "section",
    {class: "card stack"},
    h("h2", {}, `${name} `, tag),
    plan(join.explanation, join),
    sampleRows(join),
  );
}
