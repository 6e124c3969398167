// Figures and keys as people read them.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function count(number) {
  if (number < 10_000) return Math.round(number).toLocaleString("en");
  const [size, unit] = number < 999_500 ? [1e3, "k"] : number < 999.5e6 ? [1e6, "M"] : [1e9, "G"];
  return `${digits(number / size)}${unit}`;
}

// A count with what is counted: "1 row", "2 rows".
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function bytes(number) {
  let at = 0;
  while (number >= 1000 && at < SIZES.length - 1) {
    number /= 1024;
    at++;
  }
  return `${at ? digits(number) : Math.round(number)} ${SIZES[at]}`;
}

export function seconds(number) {
  if (number === 0) return "0 s";
  if (number < 0.001) return `${digits(number * 1e6)} µs`;
  if (number < 1) return `${digits(number * 1e3)} ms`;
  if (number < 120) return `${digits(number)} s`;
  if (number < 7200) return `${digits(number / 60)} min`;
  return number < 172_800 ? `${digits(number / 3600)} h` : `${digits(number / 86_400)} d`;
}

export function rate(number) {
  return number > 0 && number < 10 ? digits(number) : count(number);
}

function digits(number) {
  return number >= 100 ? number.toFixed(0) : number.toFixed(number >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

// Bytes in JSON are text, or {"base64": ...}; as text for people, \xff stands for a byte that is no text.
export function keyText(value) {
  if (typeof value === "string") return value.replaceAll("\\", "\\\\").replace(/[\0-\x1f\x7f]/g, escapedByte);
  const raw = atob(value.base64);
  return raw.replaceAll("\\", "\\\\").replace(/[^ -~]/g, escapedByte);
}

function escapedByte(letter) {
  return `\\x${letter.charCodeAt(0).toString(16).padStart(2, "0")}`;
}

// A backslash in a typed key, with what stands behind it.
const ESCAPE = /(\\x.{0,2}|\\.?)/su;

// That a typed key has an escape that stands for no byte.
export class EscapeError extends Error {
  constructor(escape) {
    super(`${escape} stands for no byte: write \\\\ for a backslash, and \\xff for the byte ff.`);
  }
}

// And back: what a query or a path says for the text of a key.
export function keyQuery(text) {
  return text
    .split(ESCAPE)
    .map((part) => (part.startsWith("\\") ? escapeQuery(part) : encodeURIComponent(part)))
    .join("");
}

function escapeQuery(escape) {
  if (escape === "\\\\") return "%5C";
  if (!/^\\x[0-9a-fA-F]{2}$/.test(escape)) throw new EscapeError(escape);
  return `%${escape.slice(2)}`;
}

// A value as text; JSON is laid out.
export function valueText(value) {
  if (typeof value !== "string") return keyText(value);
  if (!/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}
