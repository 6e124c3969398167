/** Commands as the columns of a message; and what they gave, from the columns of a reply. */

import { type Command, FOREVER, type Result } from "./command.js";
import { type Row, bufferOf } from "./data.js";
import { type PequodError, errorOfCommand } from "./errors.js";
import { CommandMethods } from "./generated/commands.js";
import type { CommandError } from "./generated/pequod_pb.js";

/** The results of a batch: where a command failed, its error. */
export type Results = (Result | PequodError)[];

const [OK, ABSENT, FAILED, PART, UNMET] = [0, 1, 2, 3, 4];

/** Commands in the order in which they will run. */
export class Commands extends CommandMethods {
  readonly list: Command[] = [];

  protected added(command: Command): this {
    this.list.push(command);
    return this;
  }
}

export const columnsOf = (commands: readonly Command[]) => ({
  kinds: Uint8Array.from(commands, ({ kind }) => kind.code),
  arguments: commands.flatMap((command) => command.arguments),
  numbers: commands.flatMap(({ numbers }) => numbers),
});

interface ReplyColumns {
  statuses: Uint8Array;
  keys: Uint8Array[];
  values: Uint8Array[];
  counts: bigint[];
  errors?: CommandError[];
}

/** What commands gave, from the pieces of the reply. */
export function resultsOf(commands: readonly Command[], pieces: readonly ReplyColumns[]): Results {
  const keys = taken(pieces.flatMap((piece) => piece.keys));
  const values = taken(pieces.flatMap((piece) => piece.values));
  const counts = taken(pieces.flatMap((piece) => piece.counts));
  const errors = taken(pieces.flatMap((piece) => piece.errors ?? []));
  const results: Results = [];
  let rows: Row[] = [];
  for (const status of pieces.flatMap(({ statuses }) => [...statuses])) {
    const gives = commands[results.length]?.kind.gives;
    if (gives === "ROWS" && status !== FAILED) {
      for (let left = counts(); left > 0n; left--) rows.push([bufferOf(keys()), bufferOf(values())]);
      if (status === PART) continue;
    }
    if (status === FAILED) results.push(errorOfCommand(errors()));
    else if (gives === "ROWS") results.push(rows);
    else if (gives === "WAS_THERE") results.push(status === OK);
    else if (gives === "MET" && status === OK) results.push({ met: true });
    else if (gives === "MET") results.push({ met: false, present: status === UNMET ? bufferOf(values()) : undefined });
    else if (gives === "NOTHING" || status === ABSENT) results.push(undefined);
    else if (gives === "VALUE") results.push(bufferOf(values()));
    else {
      const count = counts();
      results.push(count === FOREVER ? Infinity : Number(count));
    }
    rows = [];
  }
  return results;
}

/** Gives the values of a column one after the other. */
function taken<T>(column: readonly T[]): () => T {
  const values = column.values();
  return () => {
    const { value, done } = values.next();
    if (done) throw new Error("the reply does not fit the commands");
    return value;
  };
}
