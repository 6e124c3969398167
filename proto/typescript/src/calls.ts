/** The calls of a client and of its sessions. */

import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { setTimeout as sleep } from "node:timers/promises";
import { type Command, Commands, type Condition, type Lifetime, type Read, type Result } from "./commands.js";
import { type Results, type ScanRange, type Written, columnsOf, isOnce, isRead, keyOf } from "./commands.js";
import { newId, resultsOf, ttlOf } from "./commands.js";
import { type Data, type Range, type Row, bufferOf, bytesOf, fieldsOf, maybe } from "./data.js";
import { PequodError } from "./errors.js";
import { type Freshness, levelOf } from "./freshness.js";
import { type Header, type Join, Pequod } from "./generated/pequod_pb.js";
import type { ExecuteReply, ExecuteRequestSchema, ScanReply, ScanRequestSchema } from "./generated/pequod_pb.js";
import { type Link, type Route, pauseMs } from "./link.js";
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
type ScanInit = MessageInitShape<typeof ScanRequestSchema>;
type Waiting = { command: Command; resolve: (result: Result) => void; reject: (error: unknown) => void };
type State = Pick<Header, "token" | "ageMs" | "serverId" | "revision">;

/** Commands that go out as one message. They run in order; one that fails does not stop the others. */
export class Batch extends Commands {
  constructor(private readonly run: (commands: Command[]) => Promise<Results>) {
    super();
  }
  send(): Promise<Results> {
    return this.run(this.list);
  }
}

export abstract class Calls {
  /** Calls of this turn of the event loop, by lane. */
  private readonly turns = new Map<string, { calls: Waiting[]; bytes: number }>();

  constructor(protected readonly link: Link) {}

  /** The level of a read whose caller says this. */
  protected abstract level(freshness: Freshness | undefined): Freshness | undefined;
  /** Take note of the state that a reply shows. */
  protected abstract note(state: State): void;
  /** Whether the commands of a batch may run at several servers at once. */
  protected abstract readonly mayDivide: boolean;

  get(key: Data, read?: Read): Promise<Buffer | undefined> {
    return this.one((commands) => commands.get(key, read));
  }
  put(key: Data, value: Data, lifetime?: Lifetime): Promise<void> {
    return this.one((commands) => commands.put(key, value, lifetime));
  }
  /** Write a key if its present value meets the condition. */
  putIf(key: Data, value: Data, condition: Condition, lifetime?: Lifetime): Promise<Written> {
    return this.one((commands) => commands.putIf(key, value, condition, lifetime));
  }
  /** Remove a key; true if it was there. */
  remove(key: Data): Promise<boolean> {
    return this.one((commands) => commands.remove(key));
  }
  removeIf(key: Data, condition: Condition): Promise<Written> {
    return this.one((commands) => commands.removeIf(key, condition));
  }
  /** Add to the value of a key, which is 0 if the key is absent; the exact sum, in decimal digits. */
  add(key: Data, delta: Data | bigint | number): Promise<Buffer> {
    return this.one((commands) => commands.add(key, delta));
  }
  /** Have a key expire; true if it is there. */
  expire(key: Data, ttlMs: number): Promise<boolean> {
    return this.one((commands) => commands.expire(key, ttlMs));
  }
  /** Have a key live for ever; true if it is there. */
  persist(key: Data): Promise<boolean> {
    return this.one((commands) => commands.persist(key));
  }
  /** The milliseconds that a key has left: Infinity without a deadline, undefined if it is absent. */
  ttl(key: Data, read?: Read): Promise<number | undefined> {
    return this.one((commands) => commands.ttl(key, read));
  }
  /** The rows of a range: of one moment, if they fit into one message. */
  scan(range?: ScanRange): Promise<Row[]> {
    return this.one((commands) => commands.scan(range));
  }
  count(range?: Range & Read): Promise<number> {
    return this.one((commands) => commands.count(range));
  }

  /** Commands that go out together; `freshness` is that of reads that do not say it themselves. */
  batch(read: Read = {}): Batch {
    return new Batch((commands) => this.run(commands, read));
  }

  /** The values of keys in their order; in a cluster, those of one server are of one moment. */
  async multiGet(keys: readonly Data[], read: Read = {}): Promise<(Buffer | undefined)[]> {
    const wanted = keys.map(bytesOf);
    const found: (Buffer | undefined)[] = wanted.map(() => undefined);
    const get = async (places: number[]): Promise<void> => {
      const some = places.map((at) => wanted[at] ?? NONE);
      const request = { keys: some, ...this.fresh(read) };
      const { values, present } = await this.unary(rpc.multiGet, request, { read: some[0] ?? NONE }, true);
      values.forEach((value, place) => (found[places[place] ?? 0] = present[place] ? bufferOf(value) : undefined));
      if (values.length < places.length) await get(places.slice(values.length));
    };
    await Promise.all((await this.link.parts(wanted.map((read) => ({ read })))).map(get));
    return found;
  }

  /** Write many keys, all or none. */
  async multiPut(rows: Iterable<readonly [Data, Data]>, lifetime: Lifetime = {}): Promise<void> {
    const pairs = [...rows];
    const request = { keys: pairs.map(([key]) => bytesOf(key)), values: pairs.map(([, value]) => bytesOf(value)) };
    const expiry = lifetime.keepTtl && lifetime.ttlMs === undefined ? { keepTtl: true } : { ttlMs: ttlOf(lifetime) };
    await this.unary(rpc.multiPut, { ...request, ...expiry }, { read: request.keys[0] ?? NONE });
  }

  /** Compare keys, and run one of two lists of commands, all or none: `new Commands().add("n", 1)`. */
  async transaction(
    compares: readonly Compare[], then: Commands, otherwise = new Commands(), read: Read = {},
  ): Promise<Transacted> {
    const all = [...then.list, ...otherwise.list];
    const keys = [...compares.map(({ key }) => bytesOf(key)), ...all.map(keyOf)];
    const once = all.every(isRead) || !this.link.retries ? {} : { requestId: newId(16) };
    const request = {
      compareKeys: keys.slice(0, compares.length),
      compareOperators: Uint8Array.from(compares, (compare) => OPERATORS[compare.is]),
      compareValues: compares.map((compare) => ("value" in compare ? bytesOf(compare.value) : NONE)),
      then: columnsOf(then.list),
      otherwise: columnsOf(otherwise.list),
      ...this.fresh(read),
      ...once,
    };
    const harmless = "requestId" in once || all.every(isRead);
    const reply = await this.unary(rpc.transaction, request, { read: keys[0] ?? NONE }, harmless);
    return { held: reply.held, outcomes: resultsOf((reply.held ? then : otherwise).list, reply) as Result[] };
  }

  /** Remove the keys of a range, which begins with `first` or `prefix`; how many there were. */
  async removeRange(range: Range): Promise<number> {
    if (range.first === undefined && !range.prefix?.length) throw new TypeError("name the range by first or prefix");
    let removed = 0;
    for (const part of await this.link.homeParts(range)) {
      removed += Number((await this.unary(rpc.removeRange, part, { write: part.first })).removed);
    }
    return removed;
  }

  /** The rows of a large range, in chunks that are each of one moment. */
  async *scanChunks(range: ScanRange = {}): AsyncGenerator<Row[], void> {
    for await (const chunk of this.chunks(range)) if (chunk.keys.length) yield rowsOf(chunk);
  }
  async keys(range: ScanRange = {}): Promise<Buffer[]> {
    const found: Buffer[] = [];
    for await (const { keys } of this.chunks(range, { keysOnly: true })) found.push(...keys.map(bufferOf));
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
    return follow(this.link, first, last, { ...options, freshness }, (header) => this.note(header));
  }

  /** Install the joins of a text, all or none. */
  async addJoin(text: string): Promise<Join[]> {
    return (await this.unary(rpc.addJoin, { text }, "joins", true)).joins;
  }
  async dropJoin(name: string): Promise<void> {
    await this.unary(rpc.dropJoin, { name }, "joins");
  }
  async joins(): Promise<Join[]> {
    return (await this.unary(rpc.listJoins, {}, "any", true)).joins;
  }
  /**
   * Any other call of the contract, at a server that reads the key: `client.call(Pequod.method.stats, {})`.
   * It is made again only where it certainly was not applied.
   */
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>, request: MessageInitShape<I>, key?: Data,
  ): Promise<MessageShape<O>> {
    return this.unary(method, request, key === undefined ? "any" : { read: bytesOf(key) });
  }

  /** The chunks of a scan, one call for each: the next one, of whichever server, is of a state that is no older. */
  private async *chunks(range: ScanRange, how: { keysOnly?: boolean } = {}): AsyncGenerator<ScanReply, void> {
    const { limit, reverse = false } = range;
    let request: ScanInit = { ...fieldsOf(range), reverse, oneChunk: true, ...how, ...this.fresh(range) };
    for (let left = limit; ; ) {
      if (left !== undefined) request.limit = BigInt(left);
      const wanted: ScanInit = request;
      const chunk: ScanReply = await this.link.call({ read: wanted.first ?? NONE }, true, async (server, deadline) =>
        this.noted(await server.first(rpc.scan, wanted, deadline)),
      );
      yield chunk;
      if (left !== undefined) left -= chunk.keys.length;
      if (chunk.resumeKey === undefined || left === 0) return;
      const freshness: ScanInit["freshness"] = { level: { case: "after", value: chunk.header?.token ?? NONE } };
      request = { ...wanted, freshness, ...(reverse ? { last: chunk.resumeKey } : { first: chunk.resumeKey }) };
    }
  }

  /** Give a command to those of the same lane and turn of the event loop, which go out as one message. */
  private one<T extends Result | void>(add: (commands: Commands) => Commands): Promise<T> {
    const [command] = add(new Commands()).list as [Command];
    const freshness = isRead(command) ? this.level(command.freshness) : undefined;
    // What may wait, or must not be sent twice, is no burden to the others.
    const lane = isRead(command) ? (freshness ? "level" : "read") : isOnce(command) ? "once" : "write";
    return new Promise<Result>((resolve, reject) => {
      const turn = this.turns.get(lane) ?? { calls: [], bytes: 0 };
      if (turn.calls.length === 0) setImmediate(() => this.flush(lane));
      this.turns.set(lane, turn);
      turn.calls.push({ command: { ...command, freshness }, resolve, reject });
      turn.bytes += command.arguments.reduce((sum, { length }) => sum + length, 0);
      if (turn.bytes > TURN_BYTES_MAX) this.flush(lane);
    }) as Promise<T>;
  }

  private flush(lane: string): void {
    const { calls } = this.turns.get(lane) ?? { calls: [] };
    this.turns.delete(lane);
    const settle = (results: Results) =>
      calls.forEach(({ resolve, reject }, at) => {
        const result = results[at];
        if (result instanceof PequodError) reject(result);
        else resolve(result);
      });
    this.run(calls.map(({ command }) => command), {}, true).then(settle, (error: unknown) =>
      calls.forEach(({ reject }) => reject(error)),
    );
  }

  /** Run commands, in a cluster those of each server by themselves; again those whose keys have another home now. */
  private async run(commands: Command[], read: Read, mayDivide = this.mayDivide, tries = 1): Promise<Results> {
    if (commands.length === 0) return [];
    const results: Results = [];
    // A compute hands writes on to homes; a home does not compute.
    const isAsked = (one: Command) => isRead(one) || !mayDivide;
    const routes = commands.map((one): Route => (isAsked(one) ? { read: keyOf(one) } : { write: keyOf(one) }));
    const parts = await this.link.parts(routes, mayDivide);
    await Promise.all(parts.map(async (places) => {
      const some = places.flatMap((at) => commands[at] ?? []);
      const found = await this.execute(some, routes[places[0] ?? 0] ?? "any", read).catch((error: unknown) => {
        if (parts.length === 1 || !(error instanceof PequodError)) throw error;
        return some.map(() => error);
      });
      places.forEach((at, number) => (results[at] = found[number]));
    }));
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
    const hasId = this.link.retries > 0 && commands.some(isOnce);
    const fresh = commands.flatMap(({ freshness }, at) => (freshness ? [{ at, freshness }] : []));
    const request: MessageInitShape<typeof ExecuteRequestSchema> = {
      ...columnsOf(commands),
      ...this.fresh(read),
      freshCommands: fresh.map(({ at }) => at),
      freshLevels: fresh.map(({ freshness }) => levelOf(this.level(freshness) ?? freshness)),
      batchId: hasId ? newId(12) : NONE,
    };
    const harmless = commands.every((command) => isRead(command) || (hasId && isOnce(command)));
    const pieces = await this.link.call(route, harmless, (server, deadline) => server.execute(request, deadline));
    pieces.forEach((piece) => this.note(piece));
    const statuses = Buffer.concat(pieces.map((piece) => piece.statuses));
    const column = <T>(take: (piece: ExecuteReply) => T[]): T[] => pieces.flatMap(take);
    const keyed = { keys: column(({ keys }) => keys), values: column(({ values }) => values) };
    const rest = { counts: column(({ counts }) => counts), errors: column(({ errors }) => errors) };
    return resultsOf(commands, { statuses, ...keyed, ...rest });
  }

  private fresh({ freshness }: Read): { freshness?: ReturnType<typeof levelOf> } {
    const level = this.level(freshness);
    return level === undefined ? {} : { freshness: levelOf(level) };
  }
  private noted<T extends object>(reply: T): T {
    if ("header" in reply && reply.header) this.note(reply.header as Header);
    return reply;
  }
  private async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>, request: MessageInitShape<I>, route: Route, harmless = false,
  ): Promise<MessageShape<O>> {
    const made = this.link.call(route, harmless, (server, deadline) => server.unary(method, request, deadline));
    return this.noted(await made);
  }
}

const rowsOf = ({ keys, values }: ScanReply): Row[] =>
  keys.map((key, at) => [bufferOf(key), bufferOf(values[at] ?? NONE)]);
