/** The servers of groups in rendezvous order; the first ones of a group are kept while servers come and go. */

import { blake2b } from "@noble/hashes/blake2.js";
import { type ClusterServer, type FollowClusterReply } from "./generated/pequod_pb.js";

/** Servers that are kept for a group; with fewer left than `LEFT_MIN`, all are ranked anew. */
export const KEPT = 8;
const LEFT_MIN = 4;
/** The spares that a read has at least, if there are servers for them. */
export const SPARES_MIN = 3;
const GROUPS_MAX = 65_536;
/** Changes that are known; for a group that was not asked for since, all servers are ranked anew. */
const CHANGES_MAX = 256;

interface Scored { id: string; score: number }

/** How great the claim of a server to a group is; the greatest wins, as for every other client. */
function score(server: string, weight: number, group: Buffer): number {
  const hashed = blake2b(group, { dkLen: 8, key: Buffer.from(server) });
  const even = (Number(Buffer.from(hashed).readBigUInt64BE() >> 12n) + 0.5) / 2 ** 52;
  return -weight / Math.log(even);
}

/** The greatest score first; of servers with one score, the greatest id. */
const byScore = (one: Scored, two: Scored): number => two.score - one.score || (one.id < two.id ? 1 : -1);

export function ranked(group: Buffer, servers: ClusterServer[]): ClusterServer[] {
  const byId = new Map(servers.map((one) => [one.id, one]));
  const found = servers.map(({ id, weight }) => ({ id, score: score(id, weight ?? 1, group) }));
  return found.sort(byScore).map(({ id }) => byId.get(id)!);
}

/** Ranks servers for groups: a server that comes or goes costs a group that is kept some hashes, not all. */
class Ranking {
  private weights = new Map<string, number>();
  /** The latest servers that have come, gone, or got another weight; `changes` counts them all. */
  private changed: string[] = [];
  private changes = 0;
  private readonly groups = new Map<string, { changes: number; first: Scored[] }>();

  update(servers: ClusterServer[]): void {
    const before = this.weights;
    this.weights = new Map(servers.map(({ id, weight }) => [id, weight ?? 1]));
    const changed = [
      ...[...this.weights].filter(([id, weight]) => before.get(id) !== weight).map(([id]) => id),
      ...[...before.keys()].filter((id) => !this.weights.has(id)),
    ];
    this.changes += changed.length;
    this.changed = [...this.changed, ...changed].slice(-CHANGES_MAX);
  }

  /** The first servers for a group, or all: the owner, then its spares. */
  first(group: Buffer): Scored[] {
    const name = group.toString("latin1");
    const kept = this.groups.get(name);
    if (kept?.changes === this.changes) return kept.first;
    const first = (kept && this.carriedOn(group, kept)) ?? this.rankedAnew(group);
    if (this.groups.size >= GROUPS_MAX) this.groups.clear();
    this.groups.set(name, { changes: this.changes, first });
    return first;
  }

  /** By those that were the first before some changes; undefined if too few are left. */
  private carriedOn(group: Buffer, kept: { changes: number; first: Scored[] }): Scored[] | undefined {
    const missed = this.changes - kept.changes;
    if (missed > Math.min(this.changed.length, this.weights.size / 2)) return undefined;
    const changed = new Set(this.changed.slice(-missed));
    const left = kept.first.filter(({ id }) => !changed.has(id));
    const last = left.at(-1);
    if (last === undefined || left.length < LEFT_MIN) return undefined;
    const come = [...changed].filter((id) => this.weights.has(id));
    const found = [...left, ...come.map((id) => this.scored(id, group))].sort(byScore);
    // Those behind the last one that is left may come after others, which are not kept.
    return found.slice(0, Math.min(KEPT, found.indexOf(last) + 1));
  }

  private rankedAnew(group: Buffer): Scored[] {
    return [...this.weights.keys()].map((id) => this.scored(id, group)).sort(byScore).slice(0, KEPT);
  }

  private scored(id: string, group: Buffer): Scored {
    return { id, score: score(id, this.weights.get(id) ?? 1, group) };
  }
}

/** The computes ranked for groups, those of a zone before the others; kept from one state to the next. */
export class Rankings {
  private readonly near = new Ranking();
  private readonly far = new Ranking();

  constructor(private readonly zone: string | null) {}

  isNear(server: ClusterServer): boolean {
    return this.zone === null || server.zone === this.zone;
  }

  /** Rank the computes of a state, also those that no reads go to: they may be back in the next one. */
  update(state: FollowClusterReply): void {
    const computes = state.servers.filter(({ roles }) => roles.includes("compute"));
    this.near.update(computes.filter((one) => this.isNear(one)));
    this.far.update(computes.filter((one) => !this.isNear(one)));
  }

  /** The first servers for a group among those that reads go to; undefined if too few are kept. */
  first(group: Buffer, present: ReadonlyMap<string, ClusterServer>): ClusterServer[] | undefined {
    const found: ClusterServer[] = [];
    const sizes = [0, 0];
    for (const one of present.values()) sizes[this.isNear(one) ? 0 : 1]! += 1;
    for (const [side, ranking] of [this.near, this.far].entries()) {
      const some = ranking.first(group).flatMap(({ id }) => present.get(id) ?? []);
      if (some.length < Math.min(SPARES_MIN + 1, sizes[side]!)) return undefined;
      found.push(...some);
      // Others of this side come before those of the other one.
      if (some.length < sizes[side]!) break;
    }
    return found;
  }

  /** All servers for a group among those that reads go to, those of the zone first. */
  all(group: Buffer, present: ClusterServer[]): ClusterServer[] {
    const isFar = (one: ClusterServer) => Number(!this.isNear(one));
    return ranked(group, present).sort((one, two) => isFar(one) - isFar(two));
  }
}
