// Follows a range: the events of /v1/watch, read with the reader's token in a header, which EventSource cannot send.

import {headers, reasonOf, refused} from "./api.js";

const AGAIN_MS = 1500;

// Calls take(kind, members) for each event, and tell(text) with the state of the connection, until it is stopped.
export function follow(query, take, tell) {
  const stop = new AbortController();
  run(`/v1/watch?${query}`, take, tell, stop.signal);
  return () => stop.abort();
}

async function run(path, take, tell, signal) {
  let last = "";
  while (!signal.aborted) {
    try {
      last = await read(path, last, take, tell, signal);
    } catch (error) {
      if (signal.aborted) return;
      tell(reasonOf(error));
      // What is refused once is refused again.
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function read(path, last, take, tell, signal) {
  const reply = await fetch(path, {
    headers: {...headers(), ...(last ? {"Last-Event-ID": last} : {})},
    signal,
    cache: "no-store",
  });
  if (!reply.ok) throw refused(reply.status, (await reply.json()).error);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return last;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s)));
      if (!fields.event) continue;
      last = fields.id || last;
      const members = JSON.parse(fields.data);
      if (fields.event === "end") tell(members.message);
      else {
        tell("");
        take(fields.event, members);
      }
    }
  }
}
