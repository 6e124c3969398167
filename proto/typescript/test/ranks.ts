/** Says where the servers of groups are, in states that follow each other: lines of JSON, which a test compares. */

import { create } from "@bufbuild/protobuf";
import { readFileSync } from "node:fs";
import { type FollowClusterReply, FollowClusterReplySchema } from "../src/generated/pequod_pb.js";
import { stateAfter } from "../src/map.js";
import { Rankings, ranked } from "../src/ranks.js";

interface Given { id: string; weight: number; zone: string; state: string }

const [, , file = "", zone = ""] = process.argv;
const { states, groups } = JSON.parse(readFileSync(file, "utf8")) as { states: Given[][]; groups: string[] };
const rankings = new Rankings(zone || null);
let known: FollowClusterReply | undefined;
for (const [at, given] of states.entries()) {
  // After the first state, what has changed is told.
  const before = new Map((states[at - 1] ?? []).map((one) => [one.id, JSON.stringify(one)]));
  const changed = given.filter((one) => before.get(one.id) !== JSON.stringify(one));
  const gone = [...before.keys()].filter((id) => !given.some((one) => one.id === id));
  const servers = changed.map((one) => ({ ...one, roles: ["compute"] }));
  const map = { version: 3n };
  const difference = { isDifference: true, servers, gone };
  const state = stateAfter(known, create(FollowClusterReplySchema, at ? difference : { map, servers }));
  if (state.map?.version !== 3n) throw new Error("the map is lost");
  known = state;
  rankings.update(state.servers);
  const ready = state.servers.filter((one) => one.state === "ready");
  const present = new Map(ready.map((one) => [one.id, one]));
  const found = groups.map((group) => rankings.first(Buffer.from(group), present)?.map(({ id }) => id) ?? null);
  const all = groups.map((group) => ranked(Buffer.from(group), ready, rankings.zone).map(({ id }) => id));
  process.stdout.write(`${JSON.stringify({ found, all })}\n`);
}
