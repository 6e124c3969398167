/** The calls of a client and of its sessions. */

import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { randomBytes } from "node:crypto";
import { setImmediate as endOfTurn, setTimeout as sleep } from "node:timers/promises";
import { Commands, type Results, columnsOf, resultsOf } from "./columns.js";
import { type Command, type Lifetime, type Read, type Result, type ScanRange, ttlOf } from "./command.js";
import { type Data, type Range, type Row, bufferOf, bytesOf, fieldsOf, maybe, rowsOf } from "./data.js";
import { PequodError } from "./errors.js";
import { type Freshness, levelOf } from "./freshness.js";
import { CallMethods } from "./generated/commands.js";
import { type Header, type Join, Pequod, type ScanReply } from "./generated/pequod_pb.js";
import { type Link, type Route, pauseMs } from "./link.js";
import type { Method } from "./server.js";
import { type WatchEvent, type WatchOptions, follow } from "./watch.js";

/** One compare of a transaction: of bytes, or by order of decimal numbers. */
export type Compare =
  | { key: Data; is: "absent" | "present" }
  | { key: Data; is: "equal" | "not_equal" | "less" | "greater"; value: Data };
/** Whether all compares held, and what the list that ran gave. */
export type Transacted = { held: boolean; outcomes: Result[] };
/** Some rows, and where the next ones begin. */
export type Page = { rows: Row[]; resumeKey: Buffer | undefined };

const rpc = Pequod.method;
/** A message of a server's shortest limit has room for it, and for one value more. */
const TURN_BYTES_MAX = 1 << 20;
const NONE = new Uint8Array();
const OPERATORS = { absent: 1, present: 2, equal: 3, not_equal: 4, less: 5, greater: 6 };
type Turn = { commands: Command[]; bytes: number; results: Promise<Results> };
/** What a reply shows of the state that answered. */
export type State = Pick<Header, "token" | "ageMs" | "serverId" | "revision">;

/** Commands that go out as one message. They run in order; one that fails does not stop the others. */
export class Batch extends Commands {
  constructor(private readonly run: (commands: Command[]) => Promise<Results>) {
    super();
  }
  send(): Promise<Results> {
    return this.run(this.list);
  }
}

export abstract class Calls extends CallMethods {
  /** Commands of this turn of the event loop, by lane. */
  private readonly turns = new Map<string, Turn>();

  constructor(protected readonly link: Link) {
    super();
  }

  /** The level of a read whose caller says this. */
  protected abstract level(freshness: Freshness | undefined): Freshness | undefined;
  /** Take note of the state that a reply shows. */
  protected abstract note(state: State): void;
  /** Whether the commands of a batch may run at several servers at once. */
  protected abstract readonly mayDivide: boolean;

  /** Commands that go out together; `freshness` is that of reads that do not say it themselves. */
  batch(read: Read = {}): Batch {
    return new Batch((commands) => this.run(commands, read));
  }

  /** The values of keys in their order; in a cluster, those of one server are of one moment. */
  async multiGet(keys: readonly Data[], read: Read = {}): Promise<(Buffer | undefined)[]> {
    const wanted = keys.map(bytesOf);
    return this.link.divided(wanted.map((read) => ({ read })), async (places) => {
      let found: (Buffer | undefined)[] = [];
      while (found.length < places.length) {
        const some = places.slice(found.length).map((at) => wanted[at] ?? NONE);
        const request = { keys: some, ...this.fresh(read) };
        const { values, present } = await this.ask(rpc.multiGet, request, { read: some[0] ?? NONE }, true);
        found = found.concat(values.map((value, at) => (present[at] ? bufferOf(value) : undefined)));
      }
      return found;
    });
  }

  /** Write many keys, all or none. */
  async multiPut(rows: Iterable<readonly [Data, Data]>, lifetime: Lifetime = {}): Promise<void> {
    const pairs = [...rows];
    const request = { keys: pairs.map(([key]) => bytesOf(key)), values: pairs.map(([, value]) => bytesOf(value)) };
    const expiry = lifetime.keepTtl && lifetime.ttlMs === undefined ? { keepTtl: true } : { ttlMs: ttlOf(lifetime) };
    await this.ask(rpc.multiPut, { ...request, ...expiry }, { read: request.keys[0] ?? NONE });
  }

  /** Compare keys, and run one of two lists of commands, all or none: `new Commands().add("n", 1)`. */
  async transaction(
    compares: readonly Compare[], then: Commands, otherwise = new Commands(), read: Read = {},
  ): Promise<Transacted> {
    const all = [...then.list, ...otherwise.list];
    const keys = [...compares.map(({ key }) => bytesOf(key)), ...all.map(keyOf)];
    const isOnce = this.link.retries > 0 && !all.every(isRead);
    const request = {
      compareKeys: keys.slice(0, compares.length),
      compareOperators: Uint8Array.from(compares, (compare) => OPERATORS[compare.is]),
      compareValues: compares.map((compare) => ("value" in compare ? bytesOf(compare.value) : NONE)),
      then: columnsOf(then.list),
      otherwise: columnsOf(otherwise.list),
      ...this.fresh(read),
      requestId: isOnce ? randomBytes(16) : NONE,
    };
    const reply = await this.ask(rpc.transaction, request, { read: keys[0] ?? NONE }, isOnce || all.every(isRead));
    return { held: reply.held, outcomes: resultsOf((reply.held ? then : otherwise).list, [reply]) as Result[] };
  }

  /** Remove the keys of a range, which begins with `first` or `prefix`; how many there were. */
  async removeRange(range: Range): Promise<number> {
    if (range.first === undefined && !range.prefix?.length) throw new TypeError("name the range by first or prefix");
    let removed = 0;
    for (const part of await this.link.homeParts(range)) {
      removed += Number((await this.ask(rpc.removeRange, part, { write: part.first })).removed);
    }
    return removed;
  }

  /** The rows of a large range, in chunks that are each of one moment. */
  async *scanChunks(range: ScanRange = {}): AsyncGenerator<Row[], void> {
    for await (const chunk of this.chunks(range)) if (chunk.keys.length) yield rowsOf(chunk);
  }
  async keys(range: ScanRange = {}): Promise<Buffer[]> {
    const found: Buffer[] = [];
    for await (const { keys } of this.chunks(range, true)) found.push(...keys.map(bufferOf));
    return found;
  }
  /** At most `limit` rows, and where the next ones begin: give that as `resumeKey`. */
  async scanPage(range: ScanRange & { resumeKey?: Buffer | undefined } = {}): Promise<Page> {
    const rest = range.resumeKey && (range.reverse ? { last: range.resumeKey } : { first: range.resumeKey });
    const { value } = await this.chunks({ ...range, ...rest }).next();
    return value ? { rows: rowsOf(value), resumeKey: maybe(value.resumeKey) } : { rows: [], resumeKey: undefined };
  }
  /** What happens in a range, until the iterator is left or the signal aborts; at first that the watch stands. */
  watch(first: Data, last?: Data, options: WatchOptions = {}): AsyncGenerator<WatchEvent, void> {
    const freshness = this.level(options.freshness);
    return follow(this.link, { first, last }, { ...options, freshness }, (header) => this.note(header));
  }

  /** Install the joins of a text, all or none. */
  async addJoin(text: string): Promise<Join[]> {
    return (await this.ask(rpc.addJoin, { text }, "joins", true)).joins;
  }
  async dropJoin(name: string): Promise<void> {
    await this.ask(rpc.dropJoin, { name }, "joins");
  }
  async joins(): Promise<Join[]> {
    return (await this.ask(rpc.listJoins, {}, "any", true)).joins;
  }
  /**
   * Any other call of the contract, at a server that reads the key: `client.call(Pequod.method.stats, {})`.
   * It is made again only where it certainly was not applied.
   */
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>, request: MessageInitShape<I>, key?: Data,
  ): Promise<MessageShape<O>> {
    return this.ask(method, request, key === undefined ? "any" : { read: bytesOf(key) });
  }

  /** Run a command together with others of the same lane and turn of the event loop, as one message. */
  protected async one<T>(given: Command): Promise<T> {
    const command = isRead(given) ? { ...given, freshness: this.level(given.freshness) } : given;
    // What may wait, or must not be sent twice, is no burden to the others.
    const { isWrite, isOnce } = command.kind;
    const lane = isWrite ? (isOnce ? "once" : "write") : command.freshness ? "level" : "read";
    const turn = this.turns.get(lane) ?? this.turn(lane);
    const at = turn.commands.push(command) - 1;
    turn.bytes += command.arguments.reduce((sum, { length }) => sum + length, 0);
    if (turn.bytes > TURN_BYTES_MAX) this.turns.delete(lane);
    const result = (await turn.results)[at];
    if (result instanceof PequodError) throw result;
    return result as T;
  }

  private turn(lane: string): Turn {
    const commands: Command[] = [];
    const results = endOfTurn().then(() => {
      if (this.turns.get(lane) === turn) this.turns.delete(lane);
      return this.run(commands, {}, true);
    });
    const turn = { commands, bytes: 0, results };
    this.turns.set(lane, turn);
    return turn;
  }

  /** Run commands, in a cluster those of each server by themselves; again those whose keys have another home now. */
  private async run(commands: Command[], read: Read, mayDivide = this.mayDivide, tries = 1): Promise<Results> {
    if (commands.length === 0) return [];
    // A compute hands writes on to homes; a home does not compute.
    const isAsked = (one: Command) => isRead(one) || !mayDivide;
    const routes = commands.map((one): Route => (isAsked(one) ? { read: keyOf(one) } : { write: keyOf(one) }));
    const make = (places: number[]): Promise<Results> => {
      const some = places.flatMap((at) => commands[at] ?? []);
      return this.execute(some, routes[places[0] ?? 0] ?? "any", read).catch((error: unknown) => {
        if (some.length === commands.length || !(error instanceof PequodError)) throw error;
        return some.map(() => error);
      });
    };
    const results = await (mayDivide ? this.link.divided(routes, make) : make([...commands.keys()]));
    const isMoved = (one: unknown) => one instanceof PequodError && one.reason === "NotHomeError";
    const moved = results.flatMap((one, at) => (isMoved(one) ? [at] : []));
    if (moved.length && mayDivide && tries <= this.link.retries && (await this.link.learn())) {
      await sleep(pauseMs(tries));
      const again = await this.run(moved.flatMap((at) => commands[at] ?? []), read, mayDivide, tries + 1);
      moved.forEach((at, number) => (results[at] = again[number]));
    }
    return results;
  }

  private async execute(commands: Command[], route: Route, read: Read): Promise<Results> {
    const hasId = this.link.retries > 0 && commands.some(({ kind }) => kind.isOnce);
    const fresh = commands.flatMap(({ freshness }, at) => (freshness ? [{ at, freshness }] : []));
    const request = {
      ...columnsOf(commands),
      ...this.fresh(read),
      freshCommands: fresh.map(({ at }) => at),
      freshLevels: fresh.map(({ freshness }) => levelOf(this.level(freshness) ?? freshness)),
      batchId: hasId ? randomBytes(12) : NONE,
    };
    const harmless = commands.every(({ kind }) => !kind.isWrite || (hasId && kind.isOnce));
    const pieces = await this.link.call(route, harmless, (server, deadline) => server.execute(request, deadline));
    pieces.forEach((piece) => this.note(piece));
    return resultsOf(commands, pieces);
  }

  /** The chunks of a scan, one call for each: the next one, of whichever server, is of a state that is no older. */
  private async *chunks(range: ScanRange, keysOnly = false): AsyncGenerator<ScanReply, void> {
    const { limit, reverse = false } = range;
    let rest = { ...fieldsOf(range), ...this.fresh(range) };
    for (let left = limit; ; ) {
      const most = left === undefined ? {} : { limit: BigInt(left) };
      const request = { ...rest, ...most, reverse, keysOnly, oneChunk: true };
      const chunk: ScanReply = await this.ask(rpc.scan, request, { read: rest.first }, true);
      yield chunk;
      if (left !== undefined) left -= chunk.keys.length;
      if (chunk.resumeKey === undefined || left === 0) return;
      const level = { case: "after", value: chunk.header?.token ?? NONE } as const;
      rest = { ...rest, freshness: { level }, ...(reverse ? { last: chunk.resumeKey } : { first: chunk.resumeKey }) };
    }
  }

  private fresh({ freshness }: Read): { freshness?: ReturnType<typeof levelOf> } {
    const level = this.level(freshness);
    return level === undefined ? {} : { freshness: levelOf(level) };
  }

  private async ask<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>, request: MessageInitShape<I>, route: Route, harmless = false,
  ): Promise<MessageShape<O>> {
    const reply = await this.link.call(route, harmless, (server, deadline) => server.first(method, request, deadline));
    const { header } = reply as { header?: Header };
    if (header !== undefined) this.note(header);
    return reply;
  }
}

const isRead = ({ kind }: Command): boolean => !kind.isWrite;
const keyOf = (command: Command): Uint8Array => command.arguments[0] ?? NONE;
