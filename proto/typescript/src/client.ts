/** Clients, of a server or of a cluster, and their sessions. */

import { Calls, type State } from "./calls.js";
import { type Freshness, Token, tokenOf } from "./freshness.js";
import { Link, type Options } from "./link.js";

/** A client of the server at HOST:PORT, or of the cluster at `pequod+cluster://HOST:PORT,HOST:PORT`. */
export class Client extends Calls {
  /** Of the latest reply: the state that answered, and its age in milliseconds at most, if that is known. */
  lastToken: Token | undefined;
  lastAgeMs: number | undefined;
  serverId = 0n;
  revision = 0n;
  protected readonly mayDivide = true;

  constructor(target: string, options: Options = {}) {
    super(new Link(target, options));
  }

  /** A view of this client whose reads never go back: they show what the session has written and read. */
  session(token?: Token | string, options: { waitMs?: number } = {}): Session {
    return new Session(this.link, token === undefined ? undefined : tokenOf(token), options.waitMs);
  }

  /** End the client; calls under way fail. */
  close(): void {
    this.link.close();
  }

  protected level(freshness: Freshness | undefined): Freshness | undefined {
    return freshness;
  }
  protected note({ token, ageMs, serverId, revision }: State): void {
    this.lastToken = new Token(token);
    this.lastAgeMs = ageMs === undefined ? undefined : Number(ageMs);
    [this.serverId, this.revision] = [serverId, revision];
  }
}

export class Session extends Calls {
  // One server runs the commands of a batch in their order, so that its reads show its writes.
  protected readonly mayDivide = false;

  constructor(link: Link, public token: Token | undefined, private readonly waitMs = 1000) {
    super(link);
  }

  protected level(freshness: Freshness | undefined): Freshness | undefined {
    if (this.token === undefined || (freshness !== undefined && !("after" in freshness))) return freshness;
    if (freshness === undefined) return { after: this.token, waitMs: this.waitMs };
    return { ...freshness, after: this.token.merged(tokenOf(freshness.after)) };
  }
  protected note({ token }: State): void {
    if (token.length) this.token = new Token(token).merged(this.token);
  }
}
