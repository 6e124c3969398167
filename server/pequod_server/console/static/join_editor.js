// Where a text of joins is typed; the place of its error is underlined behind it.

import {h, show} from "./dom.js";

export function joinEditor(text, changed) {
  const input = h("textarea", {
    rows: 4,
    spellcheck: "false",
    autocapitalize: "off",
    "aria-label": "Joins",
    placeholder: "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    value: text,
  });
  const behind = h("pre", {class: "behind", "aria-hidden": "true"});
  const element = h("div", {class: "editor"}, behind, input);

  function fit() {
    input.rows = Math.max(3, input.value.split("\n").length + 1);
  }
  function typed() {
    fit();
    mark(null);
    changed();
  }
  // Underlines what a problem is about; its offsets count characters.
  function mark(problem) {
    input.setAttribute("aria-invalid", String(Boolean(problem)));
    if (!problem?.line) return show(behind);
    const letters = [...input.value];
    const part = (start, end) => letters.slice(start, end).join("");
    const {start, end} = problem;
    show(behind, part(0, start), h("mark", {}, part(start, end) || " "), part(end));
    behind.scrollTop = input.scrollTop;
  }
  input.addEventListener("input", typed);
  input.addEventListener("scroll", () => (behind.scrollTop = input.scrollTop));
  fit();
  return {
    element,
    mark,
    get text() {
      return input.value;
    },
    set(value) {
      input.value = value;
      input.focus();
      typed();
    },
  };
}
