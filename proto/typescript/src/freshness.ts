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
    const positions = new Map([...entriesOf(this.bytes)]);
    for (const [mark, position] of entriesOf(other.bytes)) {
      if (position > (positions.get(mark) ?? -1n)) positions.set(mark, position);
    }
    const marks = [...positions].map(([mark, position]) => ({ at: Buffer.from(mark, "hex"), position }));
    marks.sort((one, two) => Buffer.compare(one.at.subarray(0, 4), two.at.subarray(0, 4)) || timeline(one.at, two.at));
    const writer = new BinaryWriter().raw(Uint8Array.of(1));
    for (const { at, position } of marks) writer.raw(at).uint64(position);
    return new Token(writer.finish());
  }
}

/** After its version, a token has for each mark four bytes of the database, its timeline, and the position. */
function* entriesOf(token: Uint8Array): Generator<[mark: string, position: bigint]> {
  const reader = new BinaryReader(token.subarray(1));
  while (reader.pos < reader.len) {
    const first = reader.pos;
    reader.pos += 4;
    reader.uint64();
    const mark = Buffer.from(token.subarray(1 + first, 1 + reader.pos)).toString("hex");
    yield [mark, BigInt(reader.uint64())];
  }
}

const timeline = (one: Buffer, two: Buffer): number => {
  const [left, right] = [one, two].map((mark) => BigInt(new BinaryReader(mark.subarray(4)).uint64()));
  return Number((left ?? 0n) - (right ?? 0n));
};

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
