/** Runs cases of the conformance script: node conformance.js TARGET CASES.json; prints the cases that differ. */

import { readFileSync } from "node:fs";
import type { Calls } from "../src/calls.js";
import { fieldsOf } from "../src/data.js";
import { Pequod } from "../src/generated/pequod_pb.js";
import { type Change, Client, Commands, type Compare, type Condition, type Data } from "../src/index.js";
import { type Freshness, type Lifetime, PequodError, type Result, type Session } from "../src/index.js";
import type { Token, WatchEvent } from "../src/index.js";
import { type Json, dataOf, errorOf, jsonOf } from "./forms.js";

type Args = { [name: string]: Json };
type Step = { call: string; args?: Args; reply?: Json; error?: Json; in?: string; save?: string };
type Case = { name: string; steps: Step[] };
type Bounds = { first?: Data; last?: Data; prefix?: Data; limit?: number; reverse?: boolean; freshness?: Freshness };

const resultOf = (call: string, result: Result): Json =>
  call === "ttl" && result === Infinity ? "never" : jsonOf(result);

/** Where a value differs from the expected one; empty if it matches. */
function differing(found: Json | undefined, expected: Json, place = ""): string {
  const wrong = `${place || "the outcome"} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`.slice(0, 500);
  if (Array.isArray(expected)) {
    if (!Array.isArray(found) || found.length !== expected.length) return wrong;
    return expected.map((one, at) => differing(found[at], one, `${place}[${at}]`)).find(Boolean) ?? "";
  }
  if (typeof expected !== "object" || expected === null) return found === expected ? "" : wrong;
  const { at_most, contains, repeat } = expected;
  if (at_most !== undefined) return Number(found) > 0 && Number(found) <= Number(at_most) ? "" : wrong;
  if (contains !== undefined) return typeof found === "string" && found.includes(String(contains)) ? "" : wrong;
  if (repeat !== undefined) return found === dataOf(expected).toString() ? "" : wrong;
  if (typeof found !== "object" || found === null || Array.isArray(found)) return wrong;
  const parts = Object.entries(expected).map(([name, one]) => differing(found[name], one, `${place}.${name}`));
  return parts.find(Boolean) ?? "";
}

class CaseRunner {
  private readonly tokens = new Map<string, Token>();
  private readonly sessions = new Map<string, Session>();
  private readonly watches = new Map<string, CaseWatch>();
  private resumeKey: Buffer | undefined;

  constructor(private readonly client: Client) {}

  /** Empty the server, and run a case; what differs, or an empty text. */
  async run({ steps }: Case): Promise<string> {
    for (const { name } of (await this.client.joins()).reverse()) await this.client.dropJoin(name);
    await this.client.removeRange({ first: "" });
    try {
      for (const [at, step] of steps.entries()) {
        const found = await this.outcome(step);
        const { call, args: _, in: _session, save: _save, ...expected } = step;
        const failed = "error" in found && !("error" in step) ? `it failed: ${JSON.stringify(found)}` : "";
        const wrong = differing(found, expected as Json) || failed;
        if (wrong) return `step ${at + 1}, ${call}: ${wrong}`;
      }
      return "";
    } finally {
      this.watches.forEach((watch) => watch.close());
    }
  }

  private async outcome({ call, args = {}, ...step }: Step): Promise<{ [name: string]: Json }> {
    const calls: Calls = (step.in === undefined ? undefined : this.sessions.get(step.in)) ?? this.client;
    try {
      const count = Array.isArray(step.reply) ? step.reply.length : 0;
      const isTold = call === "changes";
      const reply = await (isTold ? this.watch(args).changes(count, "error" in step) : this.reply(calls, call, args));
      if (step.save !== undefined) {
        const token = calls instanceof Client ? calls.lastToken : this.sessions.get(step.in ?? "")?.token;
        if (token !== undefined) this.tokens.set(step.save, token);
      }
      return { reply };
    } catch (error) {
      if (error instanceof PequodError) return { error: errorOf(error) };
      throw error;
    }
  }

  private async reply(calls: Calls, call: string, args: Args): Promise<Json> {
    const name = args["name"] as string | undefined;
    const [first, last] = [dataOf(args["first"] ?? ""), args["last"] == null ? undefined : dataOf(args["last"])];
    const range = this.range(args);
    switch (call) {
      case "multi_get":
        return jsonOf(await calls.multiGet((args["keys"] as Json[]).map(dataOf), range));
      case "multi_put": {
        const rows = (args["rows"] as [Json, Json][]).map(([key, value]) => [dataOf(key), dataOf(value)] as const);
        return jsonOf(await calls.multiPut(rows, lifetime(args)));
      }
      case "remove_range":
        return calls.removeRange(range);
      case "keys":
        return jsonOf(await calls.keys(range));
      case "scan_page": {
        const page = await calls.scanPage({ ...range, resumeKey: args["resume"] ? this.resumeKey : undefined });
        this.resumeKey = page.resumeKey;
        return { rows: jsonOf(page.rows), has_more: page.resumeKey !== undefined };
      }
      case "splits":
        return jsonOf((await calls.call(rpc.splits, { ...fieldsOf(range), count: BigInt(Number(args["count"])) })).keys);
      case "transaction": {
        const [then, otherwise] = ["then", "otherwise"].map((list) => this.commands(new Commands(), args[list]));
        const compares = (args["compares"] as Args[]).map(compareOf);
        const { held, outcomes } = await calls.transaction(compares, then ?? new Commands(), otherwise, range);
        return { held, outcomes: jsonOf(outcomes) };
      }
      case "batch": {
        const given = args["commands"] as { call: string }[];
        const results = await this.commands(calls.batch(range), args["commands"]).send();
        return results.map((one, at) =>
          one instanceof PequodError ? { error: errorOf(one) } : { reply: resultOf(given[at]?.call ?? "", one) },
        );
      }
      case "session":
        this.sessions.set(String(args["as"]), this.client.session(this.tokens.get(String(args["token"]))));
        return null;
      case "watch": {
        const watch = new CaseWatch(calls, first, last);
        this.watches.set(String(args["as"]), watch);
        return watch.begin({ rows: args["rows"] === true, freshness: range.freshness });
      }
      case "resume":
        return this.watch(args).resume();
      case "unwatch":
        this.watch(args).close();
        return null;
      case "add_join":
        return jsonOf(await calls.addJoin(String(args["text"])));
      case "drop_join":
        return jsonOf(await calls.dropJoin(String(name)));
      case "joins":
        return jsonOf(await calls.joins());
      case "explain_join":
      case "explain_range": {
        const { explanation } = await calls.call(rpc.explain, { subject: subjectOf(name, range) });
        return jsonOf(explanation.value);
      }
      case "invalidate_join":
      case "invalidate_range":
        return Number((await calls.call(rpc.invalidate, { subject: subjectOf(name, range) })).contexts);
      case "statistics":
        return jsonOf(await calls.call(rpc.stats, {}));
    }
    const [method, given] = this.command(call, args);
    return resultOf(call, (await (calls as unknown as Methods)[method]?.(...given)) as Result);
  }

  /** The method of a command, which calls and lists of commands have alike, and its arguments. */
  private command(call: string, args: Args): [method: string, given: unknown[]] {
    const [key, range] = [dataOf(args["key"] ?? ""), this.range(args)];
    const value = args["value"] === undefined ? [] : [dataOf(args["value"])];
    if (args["condition"] !== undefined) {
      return [`${call}If`, [key, ...value, conditionOf(args["condition"] as Args), lifetime(args)]];
    }
    const rest: { [call: string]: unknown[] } = {
      put: [...value, lifetime(args)],
      add: [dataOf(args["delta"] ?? "")],
      expire: [args["ttl_ms"]],
      get: [range],
      ttl: [range],
    };
    return [call, call === "scan" || call === "count" ? [range] : [key, ...(rest[call] ?? [])]];
  }

  private commands<T extends Commands>(commands: T, list: Json | undefined): T {
    for (const one of (list ?? []) as { call: string; args: Args }[]) {
      const [method, given] = this.command(one.call, one.args);
      (commands as unknown as Methods)[method]?.(...given);
    }
    return commands;
  }

  private watch(args: Args): CaseWatch {
    const watch = this.watches.get(String(args["watch"]));
    if (watch === undefined) throw new Error(`no watch ${String(args["watch"])}`);
    return watch;
  }

  private range(args: Args): Bounds {
    const bounds: Bounds = {};
    for (const name of ["first", "last", "prefix"] as const) if (args[name] != null) bounds[name] = dataOf(args[name]);
    if (typeof args["limit"] === "number") bounds.limit = args["limit"];
    if (args["reverse"] === true) bounds.reverse = true;
    if (args["freshness"] !== undefined) bounds.freshness = this.freshness(args["freshness"] as Args);
    return bounds;
  }

  private freshness({ wait_ms, ...level }: Args): Freshness {
    const wait = wait_ms === undefined ? {} : { waitMs: Number(wait_ms) };
    if ("latest" in level) return { ...wait, latest: true };
    if ("any" in level) return { ...wait, any: true };
    if ("max_age_ms" in level) return { ...wait, maxAgeMs: Number(level["max_age_ms"]) };
    return { ...wait, after: this.tokens.get(String(level["after"])) ?? dataOf(level["token"]) };
  }
}

const rpc = Pequod.method;
/** What an explanation, or an invalidation, is about. */
const subjectOf = (join: string | undefined, range: Bounds) =>
  join === undefined ? { case: "range", value: fieldsOf(range) } as const : { case: "join", value: join } as const;

type Methods = { [name: string]: (...given: unknown[]) => unknown };
type WatchStart = { rows?: boolean; freshness?: Freshness | undefined; after?: WatchEvent };

const lifetime = ({ ttl_ms, keep_ttl }: Args): Lifetime => ({
  ...(ttl_ms === undefined ? {} : { ttlMs: Number(ttl_ms) }),
  ...(keep_ttl === true ? { keepTtl: true } : {}),
});
const conditionOf = (condition: Args): Condition =>
  condition["is"] === "value" ? { is: "value", value: dataOf(condition["value"]) } : (condition as Condition);
const compareOf = (compare: Args): Compare =>
  ({ is: compare["is"], key: dataOf(compare["key"]), value: dataOf(compare["value"] ?? "") }) as Compare;

class CaseWatch {
  private readonly ending = new AbortController();
  private events: AsyncGenerator<WatchEvent, void> | undefined;
  private last: WatchEvent | undefined;

  constructor(
    private readonly calls: Calls,
    private readonly first: Buffer,
    private readonly until: Buffer | undefined,
  ) {}

  async begin(options: WatchStart): Promise<Json> {
    this.events = this.calls.watch(this.first, this.until, { ...options, signal: this.ending.signal });
    return jsonOf((await this.next()).rows);
  }

  async changes(count: number, fails: boolean): Promise<Json> {
    const found: Change[] = [];
    while (fails || found.length < count) found.push(...(await this.next()).changes);
    return jsonOf(found);
  }

  /** End the watch, and begin another one after its last event. */
  async resume(): Promise<Json> {
    await this.events?.return();
    await this.begin(this.last === undefined ? {} : { after: this.last });
    return null;
  }

  close(): void {
    this.ending.abort();
  }

  private async next(): Promise<WatchEvent> {
    const next = await this.events?.next();
    if (!next?.value) throw new Error("the watch has ended");
    return (this.last = next.value);
  }
}

const [target = "", path = ""] = process.argv.slice(2);
const { cases } = JSON.parse(readFileSync(path, "utf8")) as { cases: Case[] };
const client = new Client(target);
let failures = 0;
for (const one of cases) {
  const failed = (error: unknown) => String(error instanceof Error ? error.stack : error);
  const wrong = await new CaseRunner(client).run(one).catch(failed);
  if (!wrong) continue;
  failures++;
  console.log(`${one.name}: ${wrong}`);
}
client.close();
console.log(`${cases.length - failures} of ${cases.length} cases`);
process.exitCode = failures ? 1 : 0;
