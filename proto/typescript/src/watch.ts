/** Watches: the changes of a range as they happen, across broken connections. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Read } from "./command.js";
import { type Range, type Row, bufferOf, fieldsOf, maybe, rowsOf } from "./data.js";
import { PequodError, unavailable } from "./errors.js";
import { Token, levelOf } from "./freshness.js";
import { Change_Reason, type Header, Pequod, type WatchReply } from "./generated/pequod_pb.js";
import { type Link, pauseMs } from "./link.js";

export interface Change {
  key: Buffer;
  /** Undefined where there is no such key. */
  old: Buffer | undefined;
  new: Buffer | undefined;
  reason: "written" | "expired";
}

export interface WatchEvent {
  serverId: bigint;
  /** With this event's changes, the range is as of this revision of the server. */
  revision: bigint;
  token: Token;
  /** The rows of the range, in the first event, if they were asked for. */
  rows?: Row[];
  changes: Change[];
}

export interface WatchOptions extends Read {
  /** Have the rows of the range in the first event. */
  rows?: boolean;
  /** Go on after this event of an earlier watch of the same range. */
  after?: Pick<WatchEvent, "serverId" | "revision">;
  /** How long to try to reach a server again: 30000 unless said. */
  reconnectMs?: number;
  /** After this time without changes, give an event without any. */
  progressMs?: number;
  /** Ends the watch. */
  signal?: AbortSignal;
}

/** The events of a range, the first as soon as the watch stands. */
export async function* follow(
  link: Link, range: Range, options: WatchOptions, note: (header: Header) => void,
): AsyncGenerator<WatchEvent, void> {
  const { rows = false, freshness, reconnectMs = 30_000, progressMs = 0, signal } = options;
  const bounds = fieldsOf(range);
  const limits = { firstMs: link.timeoutMs, signal };
  let after = options.after;
  let hasBegun = false;
  let lostAt: number | undefined;
  for (let tries = 0; !signal?.aborted; ) {
    const [server] = await link.servers({ read: bounds.first });
    if (server === undefined) throw unavailable("no server has the role", true);
    const level = hasBegun || freshness === undefined ? {} : { freshness: levelOf(freshness) };
    const state = after === undefined ? {} : { after: { serverId: after.serverId, revision: after.revision } };
    const request = { ...bounds, rows: rows && !hasBegun, progressMs, ...level, ...state };
    let taken: Row[] = [];
    try {
      for await (const reply of server.stream(Pequod.method.watch, request, limits)) {
        taken = taken.concat(rowsOf(reply));
        if (reply.header === undefined || (reply.keys.length && !reply.ready)) continue;
        [lostAt, tries, after] = [undefined, 0, reply.header];
        note(reply.header);
        // The watch that goes on has told nothing yet.
        if (!reply.ready || !hasBegun) yield eventOf(reply, reply.header, reply.ready && rows ? taken : undefined);
        hasBegun = true;
      }
      if (signal?.aborted) return;
      throw unavailable(`${server.address} ended the watch`, true);
    } catch (error) {
      lostAt ??= Date.now();
      const isLate = hasBegun ? Date.now() - lostAt > reconnectMs : tries >= link.retries;
      if (!(error instanceof PequodError) || error.reason !== "UnavailableError" || isLate) throw error;
    }
    await sleep(pauseMs(++tries));
  }
}

const eventOf = (reply: WatchReply, { serverId, revision, token }: Header, rows: Row[] | undefined): WatchEvent => ({
  serverId,
  revision,
  token: new Token(token),
  ...(rows === undefined ? {} : { rows }),
  changes: reply.changes.map((change) => ({
    key: bufferOf(change.key),
    old: maybe(change.old),
    new: maybe(change.new),
    reason: change.reason === Change_Reason.EXPIRED ? "expired" : "written",
  })),
});
