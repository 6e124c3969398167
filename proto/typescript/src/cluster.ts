/** The way of calls to the servers of a cluster, by its map: the group of a key -> the servers in rendezvous order. */

import { setTimeout as sleep } from "node:timers/promises";
import { PequodError, unavailable } from "./errors.js";
import { type Bounds, type Range, boundsOf, bufferOf, isBefore } from "./data.js";
import {
  type ClusterHomeRange, type ClusterPlacement, type ClusterServer, type FollowClusterReply, Pequod,
} from "./generated/pequod_pb.js";
import { Link, type Options, type Route, pauseMs } from "./link.js";
import { KEPT, Rankings, ranked } from "./ranks.js";
import { type Server, closed } from "./server.js";

const BAR = "|".charCodeAt(0);
const FIRST_MAP_MS = 1000;
const GROUPS_MAX = 65_536;

/** The table and the first slots of a key, each with its delimiter. */
function cut(key: Buffer, level: number): Buffer {
  let end = 0;
  for (let slot = 0; slot <= level; slot++) {
    end = key.indexOf(BAR, end) + 1;
    if (end === 0) return key.at(-1) === BAR ? key : Buffer.concat([key, Buffer.of(BAR)]);
  }
  return key.subarray(0, end);
}

/** The prefix of the keys that go to the same computes. */
function groupOf(key: Uint8Array, placements: ClusterPlacement[]): Buffer {
  const fits = placements.filter(({ prefix }) => Buffer.compare(prefix, key.subarray(0, prefix.length)) === 0);
  const [placement] = fits.sort((one, two) => two.prefix.length - one.prefix.length);
  const group = cut(bufferOf(key), placement?.level ?? 1);
  return placement === undefined || group.length >= placement.prefix.length ? group : bufferOf(placement.prefix);
}

/** The range of a key: they are disjoint, and in key order. */
function homeOf(key: Uint8Array, ranges: ClusterHomeRange[]): ClusterHomeRange | undefined {
  let [low, high] = [0, ranges.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(key, ranges[middle]!.first)) high = middle;
    else low = middle + 1;
  }
  const found = ranges[low - 1];
  return found !== undefined && isBefore(key, found.last) ? found : undefined;
}

/** Those in the best state that there is; of them those that go by this map, if there are some. */
function present(servers: ClusterServer[], version = 0n): ClusterServer[] {
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

export class Cluster extends Link {
  private readonly seeds: string[];
  private readonly rankings: Rankings;
  private readonly ending = new AbortController();
  private state: FollowClusterReply | undefined;
  /** Those of the state that reads go to, by id. */
  private computes = new Map<string, ClusterServer>();
  /** By role and group. */
  private ranked = new Map<string, ClusterServer[]>();
  private waiting: { resolve: (state: FollowClusterReply) => void; reject: (error: unknown) => void }[] = [];
  private following: Promise<void> | undefined;

  /** @param target `pequod+cluster://HOST:PORT,HOST:PORT`; with `?zone=ZONE`, its computes are asked first */
  constructor(target: string, options: Options) {
    super(target, options);
    const [addresses = "", query] = target.replace(/^pequod\+cluster:\/\//, "").split("?");
    this.seeds = addresses.split(",");
    this.rankings = new Rankings(new URLSearchParams(query).get("zone"));
  }

  override async servers(route: Route): Promise<Server[]> {
    const found = this.entries(route, await this.map()).map(({ address }) => this.server(address));
    const now = Date.now();
    return found.sort((one, two) => Number(one.awayUntil > now) - Number(two.awayUntil > now));
  }

  override async parts(routes: readonly Route[], mayDivide = true): Promise<number[][]> {
    if (!mayDivide) return super.parts(routes);
    const state = await this.map();
    const places = new Map<string, number[]>();
    routes.forEach((route, at) => {
      const address = this.entries(route, state)[0]?.address ?? "";
      places.set(address, [...(places.get(address) ?? []), at]);
    });
    return [...places.values()];
  }

  override async homeParts(range: Range): Promise<Bounds[]> {
    const [first, last] = boundsOf(range);
    const homes = (await this.map()).map?.homeRanges ?? [];
    if (!homes.length) return super.homeParts(range);
    return homes.flatMap((home) => {
      const start = isBefore(first, home.first) ? home.first : first;
      const stop = home.last !== undefined && isBefore(home.last, last) ? home.last : last;
      return isBefore(start, stop) ? [{ first: start, ...(stop && { last: stop }) }] : [];
    });
  }

  override async learn(server?: Server): Promise<boolean> {
    try {
      const reply = await server?.first(Pequod.method.followCluster, {}, Date.now() + FIRST_MAP_MS);
      if (reply !== undefined) this.take(reply);
    } catch (error) {
      // It tells its map later, or another server does.
      if (!(error instanceof PequodError)) throw error;
    }
    return true;
  }

  override close(): void {
    this.ending.abort();
    super.close();
  }

  private entries(route: Route, state: FollowClusterReply): ClusterServer[] {
    if (typeof route === "string") return [...new Set([...this.computes.values(), ...state.servers])];
    const key = "read" in route ? route.read : route.write;
    const group = groupOf(key, state.map?.placements ?? []);
    const readers = this.readers(group);
    if ("read" in route) return readers;
    const ranges = state.map?.homeRanges ?? [];
    const home = homeOf(key, ranges);
    const homes = this.rank(`home ${home?.group}`, group, () => {
      const ofGroup = state.servers.filter((one) => !ranges.length || one.group === home?.group);
      return ranked(group, present(ofGroup.filter(({ roles }) => roles.includes("home"))));
    });
    return [...new Set([...homes, ...readers])];
  }

  /** The first computes of a group, or all, if none of those answers. */
  private readers(group: Buffer): ClusterServer[] {
    const all = (): ClusterServer[] => this.rankings.all(group, [...this.computes.values()]);
    const first = () => (this.computes.size > KEPT ? this.rankings.first(group, this.computes) : undefined);
    const found = this.rank("", group, () => first() ?? all());
    const now = Date.now();
    const isThere = ({ address }: ClusterServer) => this.server(address).awayUntil <= now;
    return found.length === this.computes.size || found.some(isThere) ? found : all();
  }

  private rank(role: string, group: Buffer, find: () => ClusterServer[]): ClusterServer[] {
    const place = `${role}|${group.toString("latin1")}`;
    const found = this.ranked.get(place) ?? find();
    if (this.ranked.size >= GROUPS_MAX) this.ranked.clear();
    this.ranked.set(place, found);
    return found;
  }

  private async map(): Promise<FollowClusterReply> {
    return this.state ?? new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.following ??= this.follow();
    });
  }

  private take(state: FollowClusterReply): void {
    if ((state.map?.version ?? 0n) < (this.state?.map?.version ?? 0n)) return;
    this.state = state;
    const computes = present(state.servers.filter(({ roles }) => roles.includes("compute")), state.map?.version);
    this.computes = new Map(computes.map((one) => [one.id, one]));
    this.rankings.update(state);
    this.ranked.clear();
    for (const { resolve } of this.waiting.splice(0)) resolve(state);
  }

  /** Follow the map at one server after another. */
  private async follow(): Promise<void> {
    for (let rounds = 1; !this.isClosed; rounds++) {
      let error: unknown = closed();
      for (const address of new Set([...(this.state?.servers ?? []).map((one) => one.address), ...this.seeds])) {
        const silent = new AbortController();
        const timer = setTimeout(() => silent.abort(), FIRST_MAP_MS);
        const signal = AbortSignal.any([silent.signal, this.ending.signal]);
        try {
          let known: FollowClusterReply | undefined;
          const server = this.server(address);
          const asked = { differences: true };
          for await (const reply of server.stream(Pequod.method.followCluster, asked, undefined, signal)) {
            clearTimeout(timer);
            known = stateAfter(known, reply);
            this.take(known);
            rounds = 1;
          }
          error = unavailable(`${address} does not tell the map`, true);
        } catch (failed) {
          error = failed;
        }
        clearTimeout(timer);
        if (this.isClosed) break;
      }
      for (const { reject } of this.waiting.splice(0)) reject(error);
      if (!this.isClosed) await sleep(pauseMs(rounds), undefined, { ref: false });
    }
  }
}
