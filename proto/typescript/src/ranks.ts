/** The servers of groups in rendezvous order; the first ones of a group are kept while servers come and go. */

import { blake2b } from "@noble/hashes/blake2.js";
import type { ClusterServer } from "./generated/pequod_pb.js";

/** Servers that are kept for a group; with fewer left than `LEFT_MIN`, all are ranked anew. */
export const KEPT = 8;
const LEFT_MIN = 4;
/** The spares that a read has at least, if there are servers for them. */
const SPARES_MIN = 3;
const GROUPS_MAX = 65_536;

type Claimant = Pick<ClusterServer, "id" | "weight" | "zone">;
interface Claim { id: string; isFar: boolean; score: number }

/** How great the claim of a server to a group is, as for every other client. */
function claimOf({ id, weight = 1, zone }: Claimant, group: Buffer, near: string | null): Claim {
  const hashed = blake2b(group, { dkLen: 8, key: Buffer.from(id) });
  const even = (Number(Buffer.from(hashed).readBigUInt64BE() >> 12n) + 0.5) / 2 ** 52;
  return { id, isFar: near !== null && zone !== near, score: -weight / Math.log(even) };
}

/** Those of the zone first; then the greatest score, and of servers with one score the greatest id. */
const inOrder = (one: Claim, two: Claim): number =>
  Number(one.isFar) - Number(two.isFar) || two.score - one.score || (one.id < two.id ? 1 : -1);

/** All of the servers for a group: the owner, then its spares; those of a zone before the others. */
export function ranked(group: Buffer, servers: Iterable<ClusterServer>, zone: string | null = null): ClusterServer[] {
  const claims = Array.from(servers, (server) => ({ server, ...claimOf(server, group, zone) }));
  return claims.sort(inOrder).map(({ server }) => server);
}

/** The servers of a group whose reads are spread over the first `count`: one of these at random, then the others. */
export function spread(found: ClusterServer[], count: number): ClusterServer[] {
  const chosen = found[Math.floor(Math.random() * Math.min(count, found.length))];
  return chosen === undefined || count <= 1 ? found : [chosen, ...found.filter((one) => one !== chosen)];
}

/** Ranks computes for groups: one that comes or goes costs a group that is kept some hashes, not all. */
export class Rankings {
  /** Each state of the cluster is a round; `since` is the one in which a server came, or got its weight or zone. */
  private round = 0;
  private known = new Map<string, { server: ClusterServer; since: number }>();
  private readonly kept = new Map<string, { round: number; first: Claim[] }>();

  constructor(readonly zone: string | null) {}

  /** Take the computes of a state, also those that no reads go to: they may be back in the next one. */
  update(computes: ClusterServer[]): void {
    const before = this.known;
    this.round++;
    this.known = new Map();
    for (const server of computes) {
      const known = before.get(server.id);
      const isSame = known && known.server.weight === server.weight && known.server.zone === server.zone;
      this.known.set(server.id, { server, since: isSame ? known.since : this.round });
    }
  }

  /** The first servers for a group among those that reads go to; undefined if too few are kept. */
  first(group: Buffer, present: ReadonlyMap<string, ClusterServer>): ClusterServer[] | undefined {
    const name = group.toString("latin1");
    let kept = this.kept.get(name);
    if (kept?.round !== this.round) {
      kept = { round: this.round, first: this.renewed(group, kept?.first ?? [], kept?.round ?? 0) };
      if (this.kept.size >= GROUPS_MAX) this.kept.clear();
      this.kept.set(name, kept);
    }
    const found = kept.first.flatMap(({ id }) => present.get(id) ?? []);
    return found.length < Math.min(SPARES_MIN + 1, present.size) ? undefined : found;
  }

  /** The first claims, by those that were the first in an earlier round, if enough of them are left. */
  private renewed(group: Buffer, first: Claim[], round: number): Claim[] {
    const left = first.filter(({ id }) => (this.known.get(id)?.since ?? Infinity) <= round);
    const last = left.length < LEFT_MIN ? undefined : left.at(-1);
    const come = [...this.known.values()].filter(({ since }) => last === undefined || since > round);
    const claims = come.map(({ server }) => claimOf(server, group, this.zone));
    if (last === undefined) return claims.sort(inOrder).slice(0, KEPT);
    const found = [...left, ...claims].sort(inOrder);
    // Those behind the last one that is left may come after others, which are not kept.
    return found.slice(0, Math.min(KEPT, found.indexOf(last) + 1));
  }
}
