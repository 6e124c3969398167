// Asks the server, with the reader's token.

import {EscapeError} from "./format.js";

const TOKEN = "pequod-token";
// Rights to change something; the others are rights to see.
const ACTS = new Set(["write", "join"]);

export class Refusal extends Error {
  constructor(status, {code = "", reason = "", message = "", facts = {}} = {}) {
    super(message || `the server answered with status ${status}`);
    Object.assign(this, {status, code, reason, facts});
  }

  // Whether the reader's role may not do this.
  get isDenied() {
    return this.status === 403;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}
export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
}
export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

export function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token === null ? {} : {Authorization: `Bearer ${token}`};
}

// Returns the members of a reply; a 404 of a key and a condition that is not met are replies, too.
export async function ask(path, {method = "GET", body, signal} = {}) {
  const kind = body === undefined ? {} : {"Content-Type": "application/json"};
  const reply = await fetch(path, {
    method,
    signal,
    cache: "no-store",
    headers: {...headers(), ...kind},
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const members = await reply.json();
  if (members.error) throw refused(reply.status, members.error);
  return members;
}

export function refused(status, error) {
  if (status === 401) dispatchEvent(new CustomEvent("stranger", {detail: hasToken()}));
  return new Refusal(status, error);
}

// Why something is not shown, in words.
export function reasonOf(error) {
  if (error instanceof Refusal) {
    const {role, right} = error.facts;
    if (!error.isDenied || !role) return error.message;
    return `${ACTS.has(right) ? "Not allowed to" : "Not shown to"} your role ${role}: ${error.message}`;
  }
  if (error instanceof EscapeError) return error.message;
  return `The server does not answer: ${error.message}`;
}
