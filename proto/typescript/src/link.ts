/** The way of calls to a server, or to the servers of a cluster: which are asked, and how often. */

import { setTimeout as sleep } from "node:timers/promises";
import { type Bounds, type Range, fieldsOf } from "./data.js";
import { PequodError, unavailable } from "./errors.js";
import { type Security, Server, closed } from "./server.js";

export interface Options extends Security {
  /** How long a call may take, all attempts together: 10000 unless said. */
  timeoutMs?: number;
  /** How often a call is tried again: 3 unless said. With 0, writes have no request ids. */
  retries?: number;
}

/** What a call is about: keys from one on, the joins, or what any server has. */
export type Route = { read: Uint8Array } | { write: Uint8Array } | "any" | "joins";

/** Half of the pause is random, so that clients do not return at once. */
export const pauseMs = (tries: number): number => Math.min(100 * 3 ** (tries - 1), 2000) * (0.5 + Math.random() / 2);
const LACKING = ["BackingUnavailableError", "BackingStaleError"];

/** The way to one server. */
export class Link {
  readonly timeoutMs: number;
  readonly retries: number;
  isClosed = false;
  private readonly known = new Map<string, Server>();

  constructor(protected readonly target: string, private readonly options: Options) {
    this.timeoutMs = options.timeoutMs ?? 10_000;
    this.retries = options.retries ?? 3;
  }

  /** The servers that are asked, in this order. */
  async servers(_route: Route): Promise<Server[]> {
    return [this.server(this.target)];
  }
  /** The positions of what goes to each server, unless all has to go to one. */
  async parts(routes: readonly Route[], _mayDivide = true): Promise<number[][]> {
    return [routes.map((_, at) => at)];
  }
  /** The parts of a range that one server each removes. */
  async homeParts(range: Range): Promise<Bounds[]> {
    return [fieldsOf(range)];
  }
  /** Learn the map that a server goes by now; false if there is none. */
  async learn(_server?: Server): Promise<boolean> {
    return false;
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

  protected server(address: string): Server {
    if (this.isClosed) throw closed();
    const known = this.known.get(address) ?? new Server(address, this.options);
    this.known.set(address, known);
    return known;
  }

  close(): void {
    this.isClosed = true;
    for (const server of this.known.values()) server.close();
  }
}
