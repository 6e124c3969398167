// A plot of the last ten minutes: lines over time, with their latest values in the legend.

import {h, show, svg} from "./dom.js";

const SPAN_MS = 600_000;
const WIDTH = 600,
  HEIGHT = 132;

// Takes series [{name, of: (look) => number or null}], format: number -> text, and step: highest value -> end of scale.
export function plot(title, series, format, step = roof) {
  const legend = h("div", {class: "legend"});
  const lines = series.map((_, at) => svg("path", {class: `c${at + 1} line`, fill: "none"}));
  const areas = series.map((_, at) => svg("path", {class: `c${at + 1} area`}));
  const rules = [0, 0.5, 1].map((share) => svg("line", {class: "rule", x1: 0, x2: WIDTH, y1: y(share), y2: y(share)}));
  const drawing = svg(
    "svg",
    {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title},
    rules,
    areas,
    lines,
  );
  const scales = [0.5, 1].map((share) => scale(share));
  const span = h("span", {}, "");
  const figure = h(
    "section",
    {class: "card plot"},
    h("header", {}, h("h2", {}, title), legend),
    h("div", {class: "canvas"}, drawing, scales),
    h("footer", {}, span, h("span", {}, "now")),
  );

  function draw(looks) {
    const end = looks.at(-1)?.at ?? 0;
    const shown = looks.filter((look) => look.at > end - SPAN_MS);
    const begin = Math.min(shown[0]?.at ?? end, end - 60_000);
    const values = series.map(({of}) => shown.map(of));
    const top = step(Math.max(0, ...values.flat().filter((value) => value !== null)));
    values.forEach((column, at) => {
      const points = column.map((value, index) => [((shown[index].at - begin) / (end - begin)) * WIDTH, value]);
      const line = path(points, top);
      lines[at].setAttribute("d", line);
      areas[at].setAttribute("d", series.length === 1 ? closed(points, line) : "");
    });
    [top / 2, top].forEach((value, at) => {
      scales[at].textContent = top ? format(value) : "";
    });
    span.textContent = `${Math.round((end - begin) / 60_000)} min ago`;
    show(
      legend,
      series.map(({name}, at) => h("span", {class: `c${at + 1}`}, `${name} `, h("b", {}, latest(values[at], format)))),
    );
  }
  return {element: figure, draw};
}

function y(share) {
  return 4 + (HEIGHT - 8) * (1 - share);
}

function scale(share) {
  const text = h("span", {class: "scale"});
  text.style.top = `${y(share)}px`;
  return text;
}

function latest(values, format) {
  const value = values.at(-1);
  return value === null || value === undefined ? "–" : format(value);
}

// The same for bytes: a power of two.
export function binaryRoof(value) {
  return value ? 2 ** Math.ceil(Math.log2(value)) : 0;
}

// The next round number: 1, 2 or 5 times a power of ten.
function roof(value) {
  if (!value) return 0;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * size >= value) * size;
}

function path(points, top) {
  let isDrawn = false;
  return points
    .map(([x, value]) => {
      if (value === null) {
        isDrawn = false;
        return "";
      }
      const step = `${isDrawn ? "L" : "M"}${x.toFixed(1)} ${y(top ? value / top : 0).toFixed(1)}`;
      isDrawn = true;
      return step;
    })
    .join("");
}

function closed(points, line) {
  const drawn = points.filter(([, value]) => value !== null);
  return drawn.length > 1 && drawn.length === points.length
    ? `${line}L${drawn.at(-1)[0].toFixed(1)} ${y(0)}L${drawn[0][0].toFixed(1)} ${y(0)}Z`
    : "";
}
