// The statistics, asked for every few seconds while the page is seen, and what has happened between two looks.

import {ask, reasonOf} from "./api.js";
import {between} from "./rates.js";

const PAUSE_MS = 5000;
// Between the first two looks, before which there are no rates.
const FIRST_MS = 1500;
// The server takes longer to collect the statistics the more it holds: it is asked at most this share of the time.
const SHARE = 0.01;
const PAUSE_MAX_MS = 60_000;
// Looks that are kept for the plots: ten minutes and more.
const KEPT = 130;

// The latest statistics, the looks so far, and why the last look failed.
export const state = {now: null, looks: [], fault: "", status: 0};
const listeners = new Set();
// How long the last looks took.
const times = [];
const TIMES = 3;
let timer = 0;
let isAsking = false;

export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// Whether statistics are of all that the server holds and does; a role without rights on all keys is told a part.
export function isWhole(now) {
  return Boolean(now.memory);
}

// Looks now, and again and again.
export async function look() {
  clearTimeout(timer);
  if (document.hidden || isAsking) return;
  isAsking = true;
  const begun = performance.now();
  try {
    take(await ask("/v1/statistics"), begun);
    Object.assign(state, {fault: "", status: 200});
  } catch (error) {
    state.fault = reasonOf(error);
    state.status = error.status;
  }
  isAsking = false;
  for (const listener of listeners) listener(state);
  times.push(performance.now() - begun);
  if (times.length > TIMES) times.shift();
  // A stranger is asked for a token first.
  if (state.fault && state.status === 401) return;
  timer = setTimeout(look, pause());
}

// The quickest of the last looks tells what the server had to do: the others waited for something else.
function pause() {
  if (state.looks.length === 0) return FIRST_MS;
  const most = times.length < TIMES ? PAUSE_MS : Math.min(...times) / SHARE;
  return Math.min(PAUSE_MAX_MS, Math.max(PAUSE_MS, most));
}

function take(statistics, at) {
  const before = state.now;
  state.now = {...statistics, at};
  if (before !== null) {
    state.looks.push(between(before, state.now));
    if (state.looks.length > KEPT) state.looks.shift();
  }
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
