/** Errors with their canonical code, the name of their class, and their facts: docs/api.md lists them. */

import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { type ServiceError, status } from "@grpc/grpc-js";
import { type ErrorInfo, ErrorInfoSchema } from "./generated/google/rpc/error_details_pb.js";
import { StatusSchema } from "./generated/google/rpc/status_pb.js";
import type { CommandError } from "./generated/pequod_pb.js";
import type { Reason } from "./generated/reasons.js";

export type Code = keyof typeof status;
export type { Reason };

/** Anything that Pequod refuses or cannot do; the text says what to do about it. */
export class PequodError extends Error {
  override readonly name = "PequodError";

  constructor(
    readonly code: Code,
    readonly reason: Reason | (string & {}),
    message: string,
    /** Facts by their names in the metadata of the error, bytes in hexadecimal: `key_hex`. */
    readonly facts: Readonly<Record<string, string>> = {},
    /** Of an UnavailableError: nothing of the call was applied. Otherwise the fate of its writes is not known. */
    readonly isUnapplied = false,
  ) {
    super(message);
  }

  /** The key that the error is about. */
  get key(): Buffer | undefined {
    return this.facts["key_hex"] === undefined ? undefined : Buffer.from(this.facts["key_hex"], "hex");
  }
}

export const unavailable = (message: string, isUnapplied: boolean) =>
  new PequodError("UNAVAILABLE", "UnavailableError", message, {}, isUnapplied);

export const closed = () =>
  new PequodError("CANCELLED", "ClosedError", "this client has been closed; make another one");

/** The error of one command of a batch. */
export const errorOfCommand = (error: CommandError) =>
  new PequodError((status[error.code] ?? "UNKNOWN") as Code, error.reason, error.message, error.facts);

const NOT_CONNECTED = /^(No connection established|Name resolution failed|failed to connect)/;
const TOO_LONG = /Received message larger than max \((\d+) vs\. (\d+)\)/;

/** The error of a call. */
export function errorOfCall(error: ServiceError, target: string): PequodError {
  const code = status[error.code] as Code;
  const info = infoOf(error);
  if (code === "UNAVAILABLE" && (info === undefined || info.reason === "ServerStopping")) {
    const isUnapplied = info !== undefined || NOT_CONNECTED.test(error.details);
    return unavailable(`no server at ${target}: ${error.details}; start one with \`pequod serve\``, isUnapplied);
  }
  if (info !== undefined) return new PequodError(code, info.reason, error.details, info.metadata);
  const sizes = TOO_LONG.exec(error.details);
  if (sizes !== null) {
    const facts = { setting: "message_bytes_max", size: sizes[1] ?? "", maximum: sizes[2] ?? "" };
    return new PequodError(code, "LimitExceededError", error.details, facts);
  }
  const reason = code === "DEADLINE_EXCEEDED" ? "DeadlineExceededError" : "PequodError";
  return new PequodError(code, reason, `${target} answered ${code}: ${error.details}`);
}

function infoOf(error: ServiceError): ErrorInfo | undefined {
  const [details] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!(details instanceof Uint8Array)) return undefined;
  return fromBinary(StatusSchema, details).details.map((any) => anyUnpack(any, ErrorInfoSchema)).find(Boolean);
}
