// Makes elements: h("p", {class: "note"}, "text", child).

export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const CHOSEN_BY_KEYS = "a, button, [tabindex]";

// Puts other children into an element. The focus stays on what it was on, if that is drawn again.
export function show(element, ...children) {
  const focused = element.querySelector(":focus")?.closest(CHOSEN_BY_KEYS);
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  if (!focused) return;
  const again = [...element.querySelectorAll(CHOSEN_BY_KEYS)].find((one) => nameOf(one) === nameOf(focused));
  again?.focus({preventScroll: true});
}

function nameOf(element) {
  return element.getAttribute("aria-label") ?? element.getAttribute("href") ?? element.textContent;
}

export function head(title, text, ...more) {
  return h("div", {class: "head"}, h("h1", {}, title), text ? h("p", {}, text) : null, ...more);
}

export function card(title, ...children) {
  return h("section", {class: "card"}, title ? h("h2", {}, title) : null, ...children);
}

export function note(text, kind = "") {
  return h("p", {class: `note ${kind}`}, text);
}

// A table of cells; columns are [title, "number" or ""]. One of kind "cards" shows each row as a card on a narrow page.
export function table(columns, rows, kind = null) {
  const heads = columns.map(([title, kind]) => h("th", {scope: "col", class: kind}, title));
  const lines = rows.map((cells) =>
    h(
      "tr",
      {},
      cells.map((cell, at) => h("td", {class: columns[at][1], "data-title": columns[at][0]}, cell)),
    ),
  );
  const parts = [h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines)];
  return h("div", {class: "scroll"}, h("table", {class: kind}, parts));
}

// A bar beside figures of one column; share is from 0 to 1.
export function level(share) {
  const bar = h("span", {class: "level"});
  bar.style.setProperty("--share", `${Math.max(share > 0 ? 1 : 0, Math.round(share * 100))}%`);
  return bar;
}

// A line for keys, as they are typed.
export function field(name, properties = {}) {
  return h("input", {name, spellcheck: "false", autocapitalize: "off", autocomplete: "off", ...properties});
}
