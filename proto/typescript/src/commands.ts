/** Commands as columns, of batches and of transactions; and what they give, from the columns of a reply. */

import { randomBytes } from "node:crypto";
import { type Data, type Range, type Row, boundsOf, bufferOf, bytesOf } from "./data.js";
import { PequodError, errorOfCommand } from "./errors.js";
import type { Freshness } from "./freshness.js";
import type { CommandError } from "./generated/pequod_pb.js";

/** On the present value of a key. */
export type Condition = { is: "absent" } | { is: "present" } | { is: "value"; value: Data };
/** What came of a write under a condition; `present` is undefined if the key is absent. */
export type Written = { met: true } | { met: false; present: Buffer | undefined };
/** When a key expires that is written: never, after some milliseconds, or when it would have without the write. */
export type Lifetime = { ttlMs?: number; keepTtl?: boolean };
export type Read = { freshness?: Freshness | undefined };
export type ScanRange = Range & Read & { limit?: number; reverse?: boolean };
export type Result = Buffer | Row[] | Written | boolean | number | undefined;
/** The results of a batch: where a command failed, its error. */
export type Results = (Result | PequodError)[];

/** One command. */
export interface Command extends Read {
  kind: number;
  arguments: Uint8Array[];
  numbers: bigint[];
}

const [GET, PUT, REMOVE, SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT] = [1, 2, 3, 4, 5, 6, 7];
const [PUT_IF, REMOVE_IF, ADD, PUT_TTL, EXPIRE, TTL] = [8, 9, 10, 11, 12, 13];
const SCANS = [SCAN, SCAN_LIMIT, SCAN_DOWN];
const READS = [GET, ...SCANS, COUNT, TTL];
const CONDITIONAL = [PUT_IF, REMOVE_IF];
const [OK, ABSENT, FAILED, PART, UNMET] = [0, 1, 2, 3, 4];
const CONDITIONS = { absent: 1n, present: 2n, value: 3n };
const FOREVER = (1n << 64n) - 1n;

export const isRead = ({ kind }: Command): boolean => READS.includes(kind);
/** Whether it may have an id, so that it is done once. */
export const isOnce = ({ kind }: Command): boolean => kind === ADD || CONDITIONAL.includes(kind);
export const keyOf = (command: Command): Uint8Array => command.arguments[0] ?? new Uint8Array();
export const newId = (length: number): Uint8Array => randomBytes(length);

/** A time to live as the wire has it. */
export function ttlOf({ ttlMs, keepTtl }: Lifetime): bigint {
  if (ttlMs === undefined) return keepTtl ? FOREVER : 0n;
  if (ttlMs > 0 && Number.isFinite(ttlMs) && !keepTtl) return BigInt(Math.ceil(ttlMs));
  const facts = { ttl: `${ttlMs} ms`, rule: keepTtl ? "a write sets a deadline or keeps it" : "it is above 0" };
  throw new PequodError("INVALID_ARGUMENT", "InvalidTtlError", `a time to live of ${facts.ttl}: ${facts.rule}`, facts);
}

/** Commands in the order in which they will run. */
export class Commands {
  readonly list: Command[] = [];

  get(key: Data, read?: Read): this {
    return this.added(GET, [key], [], read);
  }
  put(key: Data, value: Data, lifetime: Lifetime = {}): this {
    const ttl = ttlOf(lifetime);
    return ttl === 0n ? this.added(PUT, [key, value]) : this.added(PUT_TTL, [key, value], [ttl]);
  }
  /** Gives what came of it, as `Written`. */
  putIf(key: Data, value: Data, condition: Condition, lifetime: Lifetime = {}): this {
    return this.added(PUT_IF, [key, value, expected(condition)], [CONDITIONS[condition.is], ttlOf(lifetime)]);
  }
  /** Gives true if the key was there. */
  remove(key: Data): this {
    return this.added(REMOVE, [key]);
  }
  removeIf(key: Data, condition: Condition): this {
    return this.added(REMOVE_IF, [key, expected(condition)], [CONDITIONS[condition.is]]);
  }
  /** Gives the exact sum. A number that is not whole has to be text: few doubles are the decimals that one means. */
  add(key: Data, delta: Data | bigint | number): this {
    if (typeof delta === "number" && !Number.isSafeInteger(delta)) throw new TypeError(`add ${delta} as text`);
    return this.added(ADD, [key, typeof delta === "object" ? delta : String(delta)]);
  }
  /** Gives true if the key is there. */
  expire(key: Data, ttlMs: number): this {
    return this.added(EXPIRE, [key], [ttlOf({ ttlMs })]);
  }
  persist(key: Data): this {
    return this.added(EXPIRE, [key], [0n]);
  }
  /** Gives milliseconds, Infinity without a deadline, undefined if the key is absent. */
  ttl(key: Data, read?: Read): this {
    return this.added(TTL, [key], [], read);
  }
  scan(range: ScanRange = {}): this {
    const { limit, reverse } = range;
    const kind = reverse ? SCAN_DOWN : limit ? SCAN_LIMIT : SCAN;
    // On the wire a limit of 0 is none: no rows are those of an empty range.
    const bounds = boundsArguments(limit === 0 ? { last: "" } : range);
    return this.added(kind, bounds, kind === SCAN ? [] : [BigInt(limit ?? 0)], range);
  }
  count(range: Range & Read = {}): this {
    return this.added(COUNT, boundsArguments(range), [], range);
  }

  private added(kind: number, data: Data[], numbers: bigint[] = [], { freshness }: Read = {}): this {
    this.list.push({ kind, arguments: data.map(bytesOf), numbers, freshness });
    return this;
  }
}

const expected = (condition: Condition): Data => (condition.is === "value" ? condition.value : "");
/** An empty last is unbounded on the wire; a range whose last is empty has no keys, as this one has none. */
const boundsArguments = (range: Range): Data[] => {
  const [first, last] = boundsOf(range);
  return last?.length === 0 ? ["\0", "\0"] : [first, last ?? ""];
};

/** Commands as the columns of a message. */
export const columnsOf = (commands: readonly Command[]) => ({
  kinds: Uint8Array.from(commands, ({ kind }) => kind),
  arguments: commands.flatMap((command) => command.arguments),
  numbers: commands.flatMap(({ numbers }) => numbers),
});

/** The columns of a reply, all its pieces behind each other. */
export interface ReplyColumns {
  statuses: Uint8Array;
  keys: Uint8Array[];
  values: Uint8Array[];
  counts: bigint[];
  errors?: CommandError[];
}

/** What commands gave. */
export function resultsOf(commands: readonly Command[], reply: ReplyColumns): Results {
  const results: Results = [];
  const [keys, values] = [reply.keys.values(), reply.values.values()];
  const [counts, errors] = [reply.counts.values(), (reply.errors ?? []).values()];
  let rows: Row[] = [];
  for (const status of reply.statuses) {
    const kind = commands[results.length]?.kind ?? 0;
    const isScan = SCANS.includes(kind);
    if (isScan && status !== FAILED) {
      for (let left = next(counts); left > 0n; left--) rows.push([bufferOf(next(keys)), bufferOf(next(values))]);
      if (status === PART) continue;
    }
    if (status === FAILED) results.push(errorOfCommand(next(errors)));
    else if (isScan) results.push(rows);
    else if (CONDITIONAL.includes(kind)) {
      const present = status === UNMET ? bufferOf(next(values)) : undefined;
      results.push(status === OK ? { met: true } : { met: false, present });
    } else if (kind === REMOVE || kind === EXPIRE) results.push(status === OK);
    else if (status === ABSENT || kind === PUT || kind === PUT_TTL) results.push(undefined);
    else if (kind === GET || kind === ADD) results.push(bufferOf(next(values)));
    else {
      const count = next(counts);
      results.push(kind === TTL && count === FOREVER ? Infinity : Number(count));
    }
    rows = [];
  }
  return results;
}

function next<T>(column: Iterator<T, undefined>): T {
  const { value, done } = column.next();
  if (done) throw new Error("the reply does not fit the commands");
  return value;
}
