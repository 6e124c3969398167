// A live view of a range.

import {reasonOf} from "./api.js";
import {card, field, h, head, note, show} from "./dom.js";
import {keyQuery} from "./format.js";
import {liveRows} from "./live_rows.js";

export const watch = {name: "watch", title: "Watch", enter};

function enter(root, query) {
  const prefix = field("prefix", {required: true, value: query.get("prefix") ?? "", placeholder: "t|ann|"});
  const place = h("div", {class: "stack"});
  let stop = () => {};
  function begin(event) {
    event?.preventDefault();
    stop();
    try {
      const live = liveRows(`prefix=${keyQuery(prefix.value)}`);
      stop = live.stop;
      show(place, live.element);
    } catch (error) {
      show(place, note(reasonOf(error), "bad"));
    }
  }
  const label = h("label", {class: "wide"}, "Keys that begin with", prefix);
  const form = h("form", {onsubmit: begin}, label, h("button", {}, "Watch"));
  show(root, head("Watch", "Rows as they are, and each change as it comes."), card("", form), place);
  if (prefix.value) begin();
  else prefix.focus();
  return () => stop();
}
