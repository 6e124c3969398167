/** One server: its channel, and calls with promises and iterators. */

import type { DescMessage, DescMethod, DescMethodServerStreaming, DescMethodUnary } from "@bufbuild/protobuf";
import { type MessageInitShape, type MessageShape, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { PequodError, closed, errorOfCall, unavailable } from "./errors.js";
import { type ExecuteReply, type ExecuteRequest, type ExecuteRequestSchema, Pequod } from "./generated/pequod_pb.js";

/** How a client reaches servers and proves who it is; keys and certificates are PEM. */
export interface Security {
  /** Use TLS; implied by `ca` and `certificate`. */
  tls?: boolean;
  ca?: Buffer;
  certificate?: Buffer;
  key?: Buffer;
  /** A bearer token; not sent in plain text to other machines, unless `insecure` is true. */
  token?: string;
  insecure?: boolean;
}

/** A method with one request; its replies are one or more. */
export type Method<I extends DescMessage, O extends DescMessage> =
  | DescMethodUnary<I, O>
  | DescMethodServerStreaming<I, O>;
/** When a call ends: at the deadline; if the first reply is not there in time; by the signal. */
export type Limits = { deadline?: number; firstMs?: number; signal?: AbortSignal | undefined };

const CHANNEL = {
  "grpc.max_receive_message_length": -1,
  // Retries find a server that was started again; unless said, gRPC waits for up to two minutes.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2000,
};
const LOCAL = /^(127\.[\d.]+|localhost|\[::1\]|unix:.*?)(:\d+)?$/;
/** Streams of batches that are kept for further ones. */
const IDLE_MAX = 8;

export class Server {
  /** Until then, others are asked first: it did not answer. */
  awayUntil = 0;
  private readonly client: grpc.Client;
  private readonly metadata = new grpc.Metadata();
  private readonly calls = new Set<{ cancel(): void }>();
  private idle: BatchStream[] = [];
  private isClosed = false;

  constructor(readonly address: string, security: Security) {
    const { ca, certificate, key, token, insecure } = security;
    const isSecure = security.tls || ca !== undefined || certificate !== undefined;
    if (token !== undefined && !isSecure && !insecure && !LOCAL.test(address)) {
      throw new TypeError(`the token would go to ${address} in plain text; use tls, or say insecure`);
    }
    const credentials = isSecure ? grpc.credentials.createSsl(ca, key, certificate) : grpc.credentials.createInsecure();
    const options = LOCAL.test(address) ? { ...CHANNEL, "grpc.enable_http_proxy": 0 } : CHANNEL;
    this.client = new grpc.Client(address, credentials, options);
    if (token !== undefined) this.metadata.set("authorization", `Bearer ${token}`);
  }

  /** Replies until the call ends; who leaves the iterator ends it. */
  async *stream<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>, request: MessageInitShape<I>, { deadline, firstMs, signal }: Limits,
  ): AsyncGenerator<MessageShape<O>, void> {
    const message = create(method.input, request) as MessageShape<I>;
    const options = deadline === undefined ? {} : { deadline };
    const call = this.client.makeServerStreamRequest(...coded(method), message, this.metadata, options);
    const leave = () => call.cancel();
    let silence: PequodError | undefined;
    const timer = firstMs && setTimeout(() => {
      silence = unavailable(`${this.address} is silent`, true);
      leave();
    }, firstMs);
    signal?.addEventListener("abort", leave);
    this.calls.add(call);
    try {
      for await (const reply of call) {
        clearTimeout(timer);
        yield reply as MessageShape<O>;
      }
    } catch (error) {
      if (!signal?.aborted) throw silence ?? this.failed(error as Error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", leave);
      this.calls.delete(call);
      leave();
    }
  }

  /** The first reply, of most methods the only one. */
  async first<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>, request: MessageInitShape<I>, deadline: number,
  ): Promise<MessageShape<O>> {
    for await (const reply of this.stream(method, request, { deadline })) return reply;
    throw unavailable(`${this.address} gave no reply`, false);
  }

  /** The pieces of the reply to a batch. Streams are kept, as a new one would cost more than most batches. */
  async execute(request: MessageInitShape<typeof ExecuteRequestSchema>, deadline: number): Promise<ExecuteReply[]> {
    this.idle = this.idle.filter(({ hasEnded }) => !hasEnded);
    const { execute } = Pequod.method;
    const begin = () => this.client.makeBidiStreamRequest(...coded(execute), this.metadata);
    const stream = this.idle.pop() ?? new BatchStream(begin());
    this.calls.add(stream);
    try {
      const pieces = await stream.send(create(execute.input, request), deadline - Date.now());
      if (this.idle.length < IDLE_MAX) this.idle.push(stream);
      else stream.cancel();
      return pieces;
    } catch (error) {
      throw this.failed(error as Error);
    } finally {
      this.calls.delete(stream);
    }
  }

  /** Calls under way fail. */
  close(): void {
    this.isClosed = true;
    for (const call of [...this.calls, ...this.idle]) call.cancel();
    this.client.close();
  }

  private failed(error: Error): Error {
    if (this.isClosed) return closed();
    const failed = "details" in error ? errorOfCall(error as grpc.ServiceError, this.address) : error;
    if (failed instanceof PequodError && failed.reason === "UnavailableError") this.awayUntil = Date.now() + 1000;
    return failed;
  }
}

/** A stream that carries one batch after another. */
class BatchStream {
  hasEnded = false;
  private pieces: ExecuteReply[] = [];
  private batch: { resolve: (pieces: ExecuteReply[]) => void; reject: (error: Error) => void } | undefined;

  constructor(private readonly call: grpc.ClientDuplexStream<ExecuteRequest, ExecuteReply>) {
    call.on("data", (piece: ExecuteReply) => {
      this.pieces.push(piece);
      if (!piece.more) this.batch?.resolve(this.pieces.splice(0));
    });
    call.on("error", (error) => this.end(error));
    call.on("end", () => this.end(unavailable("the server ended the stream of batches", false)));
  }

  async send(request: ExecuteRequest, timeoutMs: number): Promise<ExecuteReply[]> {
    const late = new PequodError("DEADLINE_EXCEEDED", "DeadlineExceededError", "the server did not answer in time");
    const timer = setTimeout(() => this.end(late), timeoutMs);
    try {
      return await new Promise((resolve, reject) => {
        this.batch = { resolve, reject };
        this.call.write(request);
      });
    } finally {
      clearTimeout(timer);
    }
  }

  cancel(): void {
    this.call.cancel();
  }

  private end(error: Error): void {
    this.hasEnded = true;
    this.batch?.reject(error);
    this.cancel();
  }
}

const coded = <I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }) =>
  [
    `/${method.parent.typeName}/${method.name}`,
    (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
    (bytes: Buffer) => fromBinary(method.output, bytes),
  ] as const;
