/** Tokens of states, and how fresh the answer of a read has to be. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { PequodError } from "./errors.js";
import type { FreshnessSchema } from "./generated/pequod_pb.js";

/** The name of a state: of a reply, or what a session has seen. */
export class Token {
  constructor(readonly bytes: Uint8Array) {}

  /** The token of a text, as `toString` gives it. */
  static parse(text: string): Token {
    const token = new Token(Buffer.from(text.replace(/^pq1\./, ""), "base64url"));
    if (token.toString() === text) return token;
    throw new PequodError("INVALID_ARGUMENT", "InvalidTokenError", `no token: ${JSON.stringify(text)}`);
  }

  /** Characters that URLs and cookies take as they are. */
  toString(): string {
    return `pq1.${Buffer.from(this.bytes).toString("base64url")}`;
  }

  /** The token of a state that has what both have: of each database and timeline the greatest position. */
  merged(other: Token | undefined): Token {
    if (other === undefined || Buffer.compare(this.bytes, other.bytes) === 0) return this;
    const latest = new Map<string, Entry>();
    for (const entry of [...entriesOf(this.bytes), ...entriesOf(other.bytes)]) {
      if (entry.position >= (latest.get(entry.name)?.position ?? 0n)) latest.set(entry.name, entry);
    }
    const writer = new BinaryWriter().raw(Uint8Array.of(1));
    for (const { database, timeline, position } of [...latest.values()].sort(inOrder)) {
      writer.raw(database).uint64(timeline).uint64(position);
    }
    return new Token(writer.finish());
  }
}

interface Entry { name: string; database: Uint8Array; timeline: bigint; position: bigint }

/** After its version, a token has entries: four bytes of the database, its timeline, and the position. */
function* entriesOf(token: Uint8Array): Generator<Entry> {
  const reader = new BinaryReader(token.subarray(1));
  while (reader.pos < reader.len) {
    reader.pos += 4;
    const database = token.subarray(reader.pos - 3, reader.pos + 1);
    const [timeline, position] = [BigInt(reader.uint64()), BigInt(reader.uint64())];
    yield { name: `${Buffer.from(database).toString("hex")} ${timeline}`, database, timeline, position };
  }
}

const inOrder = (one: Entry, two: Entry): number =>
  Buffer.compare(one.database, two.database) || Number(one.timeline - two.timeline);

/** How fresh an answer has to be; the read waits for that `waitMs` at most, which is 1000 unless said. */
export type Freshness = { waitMs?: number } & (
  | { any: true }
  | { after: Token | Uint8Array | string }
  | { latest: true }
  | { maxAgeMs: number }
);

export const tokenOf = (token: Token | Uint8Array | string): Token =>
  token instanceof Token ? token : typeof token === "string" ? Token.parse(token) : new Token(token);

/** A level as a message. */
export function levelOf(freshness: Freshness): MessageInitShape<typeof FreshnessSchema> {
  const wait = freshness.waitMs === undefined ? {} : { waitMs: freshness.waitMs };
  if ("after" in freshness) return { ...wait, level: { case: "after", value: tokenOf(freshness.after).bytes } };
  if ("latest" in freshness) return { ...wait, level: { case: "latest", value: true } };
  if ("maxAgeMs" in freshness) return { ...wait, level: { case: "maxAgeMs", value: freshness.maxAgeMs } };
  return wait;
}
