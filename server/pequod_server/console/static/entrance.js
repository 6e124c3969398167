// Asks for a token, and keeps it for this tab.

import {forgetToken, keepToken} from "./api.js";
import {card, h, head, note, show} from "./dom.js";

export function askForToken(root, wasRefused, go) {
  forgetToken();
  const input = h("input", {type: "password", autocomplete: "off", required: true, name: "token"});
  const form = h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        keepToken(input.value.trim());
        go();
      },
    },
    h("label", {class: "wide"}, "Token", input),
    h("button", {}, "Enter"),
  );
  show(
    root,
    head("Who are you?", ""),
    card(
      "",
      h(
        "div",
        {class: "stack"},
        wasRefused ? note("The server does not know this token.", "bad") : null,
        note("This server answers callers that have a token. It is kept in this tab alone, until you close it."),
        form,
      ),
    ),
  );
  input.focus();
}
