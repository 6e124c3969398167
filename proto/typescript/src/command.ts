/** A command, and what its arguments are on the wire. */

import { type Data, type Range, type Row, boundsOf, bytesOf } from "./data.js";
import { PequodError } from "./errors.js";
import type { Freshness } from "./freshness.js";

/** On the present value of a key. */
export type Condition = { is: "absent" } | { is: "present" } | { is: "value"; value: Data };
/** What came of a write under a condition; `present` is undefined if the key is absent. */
export type Written = { met: true } | { met: false; present: Buffer | undefined };
/** When a key expires that is written: never, after some milliseconds, or when it would have without the write. */
export type Lifetime = { ttlMs?: number; keepTtl?: boolean };
export type Read = { freshness?: Freshness | undefined };
export type ScanRange = Range & Read & { limit?: number; reverse?: boolean };
export type Result = Buffer | Row[] | Written | boolean | number | undefined;

/** A kind of command; one with `isOnce` may have an id, so that it is done once. */
export interface Kind {
  code: number;
  isWrite: boolean;
  isOnce: boolean;
  gives: "VALUE" | "NOTHING" | "WAS_THERE" | "ROWS" | "COUNT" | "MET" | "REMAINING";
}

export interface Command extends Read {
  kind: Kind;
  arguments: Uint8Array[];
  numbers: bigint[];
}

/** The deadline that a key has; the time that one without a deadline has left. */
export const FOREVER = (1n << 64n) - 1n;
const CONDITIONS = { absent: 1n, present: 2n, value: 3n };

export const commandOf = (kind: Kind, data: Data[], numbers: bigint[] = [], { freshness }: Read = {}): Command => ({
  kind, arguments: data.map(bytesOf), numbers, freshness,
});

export const conditionOf = ({ is }: Condition): bigint => CONDITIONS[is];
export const expectedOf = (condition: Condition): Data => (condition.is === "value" ? condition.value : "");

/** A number that is not whole has to be text: few doubles are the decimals that one means. */
export function deltaOf(delta: Data | bigint | number): Data {
  if (typeof delta === "number" && !Number.isSafeInteger(delta)) throw new TypeError(`add ${delta} as text`);
  return typeof delta === "object" ? delta : String(delta);
}

/** An empty last is unbounded on the wire, where a limit of 0 is none: without rows is a range that has no keys. */
export function rangeOf(range: ScanRange): [first: Data, last: Data] {
  const [first, last] = boundsOf(range);
  return last?.length === 0 || range.limit === 0 ? ["\0", "\0"] : [first, last ?? ""];
}

/** A time to live; 0 stands for none. */
export function ttlOf({ ttlMs, keepTtl }: Lifetime): bigint {
  if (ttlMs === undefined) return keepTtl ? FOREVER : 0n;
  if (ttlMs > 0 && Number.isFinite(ttlMs) && !keepTtl) return BigInt(Math.ceil(ttlMs));
  const facts = { ttl: `${ttlMs} ms`, rule: keepTtl ? "a write sets a deadline or keeps it" : "it is above 0" };
  throw new PequodError("INVALID_ARGUMENT", "InvalidTtlError", `a time to live of ${facts.ttl}: ${facts.rule}`, facts);
}
