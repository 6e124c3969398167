/** Values of the conformance script, and what the client has for them. */

import { PequodError } from "../src/index.js";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export function dataOf(value: Json | undefined): Buffer {
  if (typeof value === "string") return Buffer.from(value);
  const { base64, repeat = "", times = 0 } = value as { base64?: string; repeat?: string; times?: number };
  return base64 === undefined ? Buffer.from(repeat.repeat(times)) : Buffer.from(base64, "base64");
}

function textOf(bytes: Uint8Array): Json {
  const text = Buffer.from(bytes).toString();
  return Buffer.compare(Buffer.from(text), bytes) === 0 ? text : { base64: Buffer.from(bytes).toString("base64") };
}

const named = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** What a call gave as the script has it. */
export function jsonOf(value: unknown): Json {
  if (value === undefined || value === null) return null;
  if (value instanceof Uint8Array) return textOf(value);
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(jsonOf);
  if (typeof value !== "object") return value as Json;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [named(name), jsonOf(one)]));
}

export const errorOf = ({ code, reason, facts }: PequodError): Json => ({ code, reason, facts: { ...facts } });
