/** The way of calls to a server, or to the servers of a cluster by its map: which are asked, and how often. */

import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { type Bounds, type Range, boundsOf, fieldsOf, isBefore } from "./data.js";
import { PequodError, closed, unavailable } from "./errors.js";
import { type ClusterServer, type FollowClusterReply, FollowClusterReplySchema } from "./generated/pequod_pb.js";
import { Pequod } from "./generated/pequod_pb.js";
import { groupOf, homeOf, placementOf, present, stateAfter } from "./map.js";
import { KEPT, Rankings, ranked, spread } from "./ranks.js";
import { type Security, Server } from "./server.js";

export interface Options extends Security {
  /** How long a call may take, all attempts together: 10000 unless said. */
  timeoutMs?: number;
  /** How often a call is tried again: 3 unless said. With 0, writes have no request ids. */
  retries?: number;
}

/** What a call is about: keys from one on, the joins, or what any server has. */
export type Route = { read: Uint8Array } | { write: Uint8Array } | "any" | "joins";

const SCHEME = "pequod+cluster://";
const FIRST_MAP_MS = 1000;
const GROUPS_MAX = 65_536;
const LACKING = ["BackingUnavailableError", "BackingStaleError"];

/** Half of the pause is random, so that clients do not return at once. */
export const pauseMs = (tries: number): number => Math.min(100 * 3 ** (tries - 1), 2000) * (0.5 + Math.random() / 2);

/** One server is a cluster of one, whose map says nothing and never changes. */
export class Link {
  readonly timeoutMs: number;
  readonly retries: number;
  private readonly isCluster: boolean;
  private readonly seeds: string[];
  private readonly known = new Map<string, Server>();
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
  constructor(private readonly target: string, private readonly options: Options) {
    this.timeoutMs = options.timeoutMs ?? 10_000;
    this.retries = options.retries ?? 3;
    this.isCluster = target.startsWith(SCHEME);
    const [addresses = "", query] = this.isCluster ? target.slice(SCHEME.length).split("?") : [target];
    this.seeds = addresses.split(",");
    this.rankings = new Rankings(new URLSearchParams(query).get("zone"));
    if (!this.isCluster) this.state = create(FollowClusterReplySchema, { servers: [{ id: target, address: target }] });
  }

  get isClosed(): boolean {
    return this.ending.signal.aborted;
  }

  /**
   * Make a call at the first server that answers; if none does, pause and try again.
   * @param harmless It may be made twice. Others are made again only where they certainly were not applied.
   */
  async call<T>(route: Route, harmless: boolean, make: (server: Server, deadline: number) => Promise<T>): Promise<T> {
    const deadline = Date.now() + this.timeoutMs;
    for (let tries = 1; ; tries++) {
      let [error, lacking]: unknown[] = [unavailable(`no server of ${this.target} has the role`, true)];
      for (const server of await this.servers(route)) {
        try {
          const reply = await make(server, deadline);
          if (route === "joins") await this.learn(server);
          return reply;
        } catch (failed) {
          if (this.isClosed) throw closed();
          error = failed;
          const reason = failed instanceof PequodError ? failed.reason : "";
          if (reason === "NotHomeError") {
            await this.learn(server);
            break;
          }
          if (harmless && LACKING.includes(reason)) lacking ??= failed;
          else if (reason !== "UnavailableError" || !(harmless || (failed as PequodError).isUnapplied)) throw failed;
        }
      }
      if (lacking !== undefined) throw lacking;
      const wait = pauseMs(tries);
      if (tries > this.retries || Date.now() + wait >= deadline) throw error;
      await sleep(wait);
    }
  }

  /** The servers that are asked, in this order. */
  async servers(route: Route): Promise<Server[]> {
    const found = this.entries(route, await this.map()).map(({ address }) => this.server(address));
    const now = Date.now();
    return found.sort((one, two) => Number(one.awayUntil > now) - Number(two.awayUntil > now));
  }

  /** Make something of what goes to each server, by its places; the results in the order of the routes. */
  async divided<T>(routes: readonly Route[], make: (places: number[]) => Promise<T[]>): Promise<T[]> {
    const state = await this.map();
    const parts = new Map<string, number[]>();
    for (const [at, route] of routes.entries()) {
      const address = this.entries(route, state)[0]?.address ?? "";
      const places = parts.get(address) ?? [];
      places.push(at);
      parts.set(address, places);
    }
    const results: T[] = [];
    await Promise.all([...parts.values()].map(async (places) => {
      const made = await make(places);
      made.forEach((result, number) => (results[places[number] ?? 0] = result));
    }));
    return results;
  }

  /** The parts of a range that one server each removes. */
  async homeParts(range: Range): Promise<Bounds[]> {
    const [first, last] = boundsOf(range);
    const homes = (await this.map()).map?.homeRanges ?? [];
    if (!homes.length) return [fieldsOf(range)];
    return homes.flatMap((home) => {
      const start = isBefore(first, home.first) ? home.first : first;
      const stop = home.last !== undefined && isBefore(home.last, last) ? home.last : last;
      return isBefore(start, stop) ? [fieldsOf({ first: start, last: stop })] : [];
    });
  }

  /** Learn the map that a server goes by now; false if there is none. */
  async learn(server?: Server): Promise<boolean> {
    if (!this.isCluster) return false;
    try {
      const reply = await server?.first(Pequod.method.followCluster, {}, Date.now() + FIRST_MAP_MS);
      if (reply !== undefined) this.take(reply);
    } catch (error) {
      // It tells its map later, or another server does.
      if (!(error instanceof PequodError)) throw error;
    }
    return true;
  }

  close(): void {
    this.ending.abort();
    for (const server of this.known.values()) server.close();
  }

  private server(address: string): Server {
    if (this.isClosed) throw closed();
    const known = this.known.get(address) ?? new Server(address, this.options);
    this.known.set(address, known);
    return known;
  }

  private entries(route: Route, state: FollowClusterReply): ClusterServer[] {
    if (!this.isCluster) return state.servers;
    if (typeof route === "string") return [...new Set([...this.computes.values(), ...state.servers])];
    const key = "read" in route ? route.read : route.write;
    const placement = placementOf(key, state.map?.placements ?? []);
    const group = groupOf(key, placement);
    const readers = spread(this.readers(group), placement?.readSpread ?? 1);
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
    const all = (): ClusterServer[] => ranked(group, this.computes.values(), this.rankings.zone);
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
    const computes = state.servers.filter(({ roles }) => roles.includes("compute"));
    this.state = state;
    this.computes = new Map(present(computes, state.map?.version).map((one) => [one.id, one]));
    this.rankings.update(computes);
    this.ranked.clear();
    for (const { resolve } of this.waiting.splice(0)) resolve(state);
  }

  /** Follow the map at one server after another. */
  private async follow(): Promise<void> {
    const limits = { firstMs: FIRST_MAP_MS, signal: this.ending.signal };
    for (let rounds = 1; !this.isClosed; rounds++) {
      let error: unknown = closed();
      for (const address of new Set([...(this.state?.servers ?? []).map((one) => one.address), ...this.seeds])) {
        try {
          let known: FollowClusterReply | undefined;
          const asked = { differences: true };
          for await (const reply of this.server(address).stream(Pequod.method.followCluster, asked, limits)) {
            known = stateAfter(known, reply);
            this.take(known);
            rounds = 1;
          }
          error = unavailable(`${address} does not tell the map`, true);
        } catch (failed) {
          error = failed;
        }
        if (this.isClosed) break;
      }
      for (const { reject } of this.waiting.splice(0)) reject(error);
      if (!this.isClosed) await sleep(pauseMs(rounds), undefined, { ref: false });
    }
  }
}
