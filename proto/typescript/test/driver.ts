/**
 * A client that a test in another language drives: node driver.js TARGET OPTIONS
 *
 * Each line of standard input is a call, as {"id": 1, "method": "put", "args": ["a", "1"]}, with "session": true for
 * one of the session. Each line of standard output is its result, an event of a watch, or an error.
 */

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Client, type Options, PequodError } from "../src/index.js";
import type { Link } from "../src/link.js";
import type { Server } from "../src/server.js";
import { errorOf, jsonOf } from "./forms.js";

type Call = { id: number; method: string; args: unknown[]; session?: boolean };
type Methods = { [method: string]: (...args: unknown[]) => unknown };

const [target = "", options = "{}"] = process.argv.slice(2);
const { ca, ...rest } = JSON.parse(options) as Omit<Options, "ca"> & { ca?: string };
const client = new Client(target, { ...rest, ...(ca === undefined ? {} : { ca: readFileSync(ca) }) });
const session = client.session();
const say = (id: number, said: object) => console.log(JSON.stringify({ id, ...said }));

async function make({ id, method, args, session: isOfSession }: Call): Promise<void> {
  const calls = isOfSession ? session : client;
  try {
    if (method === "servers") {
      const { link } = client as unknown as { link: Link };
      const [kind, text] = args as [string, string];
      const key = Buffer.from(text);
      const servers = await link.servers(kind === "read" ? { read: key } : { write: key });
      say(id, { result: servers.map(({ address }) => address) });
    } else if (method === "hasFailed") {
      const { known } = (client as unknown as { link: { known: Map<string, Server> } }).link;
      say(id, { result: [...known.values()].some(({ awayUntil }) => awayUntil > 0) });
    } else if (method === "batch") {
      const batch = calls.batch();
      for (const [command, ...given] of args as [string, ...unknown[]][]) {
        (batch as unknown as Methods)[command]?.(...given);
      }
      const results = await batch.send();
      say(id, { result: results.map((one) => (one instanceof PequodError ? errorOf(one) : jsonOf(one))) });
    } else if (method === "watch") {
      const events = (calls as unknown as Methods)["watch"]?.(...args) as ReturnType<Client["watch"]>;
      for await (const { rows, changes } of events) say(id, { event: jsonOf({ rows, changes }) });
    } else {
      say(id, { result: jsonOf(await (calls as unknown as Methods)[method]?.(...args)) });
    }
  } catch (error) {
    say(id, { error: error instanceof PequodError ? errorOf(error) : String(error) });
  }
}

for await (const line of createInterface({ input: process.stdin })) void make(JSON.parse(line) as Call);
client.close();
