// Writes one key.

import {ask, reasonOf} from "./api.js";
import {field, h, note, show} from "./dom.js";
import {keyQuery} from "./format.js";

export function keyWriter(done) {
  const key = field("key", {required: true, placeholder: "p|bob|0100"});
  const value = field("value", {placeholder: "Hello"});
  const said = h("div", {role: "status"});
  async function write(event) {
    event.preventDefault();
    try {
      await ask(`/v1/keys/${keyQuery(key.value)}`, {method: "PUT", body: {value: value.value}});
      show(said, note(`${key.value} is written.`, "good"));
      done();
    } catch (error) {
      show(said, note(reasonOf(error), "bad"));
    }
  }
  const labels = [h("label", {class: "wide"}, "Key", key), h("label", {class: "wide"}, "Value", value)];
  const form = h("form", {onsubmit: write}, labels, h("button", {}, "Write"));
  return h("details", {class: "card"}, h("summary", {}, "Write a key"), form, said);
}
