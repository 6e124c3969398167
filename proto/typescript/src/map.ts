/** What the map of a cluster says: the group of a key, its home, and the servers that are there. */

import { bufferOf, isBefore } from "./data.js";
import type { ClusterHomeRange, ClusterPlacement, ClusterServer } from "./generated/pequod_pb.js";
import type { FollowClusterReply } from "./generated/pequod_pb.js";

const BAR = "|".charCodeAt(0);

/** The table and the first slots of a key, each with its delimiter. */
function cut(key: Buffer, level: number): Buffer {
  let end = 0;
  for (let slot = 0; slot <= level; slot++) {
    end = key.indexOf(BAR, end) + 1;
    if (end === 0) return key.at(-1) === BAR ? key : Buffer.concat([key, Buffer.of(BAR)]);
  }
  return key.subarray(0, end);
}

/** What the map says of the groups of a key: the placement with the longest prefix of it. */
export function placementOf(key: Uint8Array, placements: ClusterPlacement[]): ClusterPlacement | undefined {
  const fits = placements.filter(({ prefix }) => Buffer.compare(prefix, key.subarray(0, prefix.length)) === 0);
  return fits.sort((one, two) => two.prefix.length - one.prefix.length)[0];
}

/** The prefix of the keys that go to the same computes. */
export function groupOf(key: Uint8Array, placement: ClusterPlacement | undefined): Buffer {
  const group = cut(bufferOf(key), placement?.level ?? 1);
  return placement === undefined || group.length >= placement.prefix.length ? group : bufferOf(placement.prefix);
}

/** The range of a key: they are disjoint, and in key order. */
export function homeOf(key: Uint8Array, ranges: ClusterHomeRange[]): ClusterHomeRange | undefined {
  // The number of ranges that begin at the key or before it: there may be thousands.
  let [count, above] = [0, ranges.length];
  while (count < above) {
    const middle = (count + above) >> 1;
    const range = ranges[middle];
    if (range !== undefined && !isBefore(key, range.first)) count = middle + 1;
    else above = middle;
  }
  const found = ranges[count - 1];
  return found !== undefined && isBefore(key, found.last) ? found : undefined;
}

/** The servers in the best state that there is; of them those that go by this map, if there are some. */
export function present(servers: ClusterServer[], version = 0n): ClusterServer[] {
  for (const state of ["ready", "draining", "joining"]) {
    const found = servers.filter((server) => server.state === state);
    const current = found.filter(({ mapVersion }) => mapVersion === 0n || mapVersion >= version);
    if (found.length) return current.length ? current : found;
  }
  return [];
}

/** The state that a reply leads to: the whole one, or a difference from the one before. */
export function stateAfter(before: FollowClusterReply | undefined, reply: FollowClusterReply): FollowClusterReply {
  if (before === undefined || !reply.isDifference) return reply;
  const servers = new Map(before.servers.map((one) => [one.id, one]));
  for (const id of reply.gone) servers.delete(id);
  for (const one of reply.servers) servers.set(one.id, one);
  const inOrder = [...servers.values()].sort((one, two) => (one.id < two.id ? -1 : 1));
  return { ...reply, ...(reply.map === undefined && before.map && { map: before.map }), servers: inOrder };
}
