/** One server: its channel, and calls with promises and iterators. */

import type { DescMessage, DescMethod, DescMethodServerStreaming, DescMethodUnary } from "@bufbuild/protobuf";
import { type MessageInitShape, type MessageShape, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { PequodError, errorOfCall, unavailable } from "./errors.js";
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

const CHANNEL = {
  "grpc.max_receive_message_length": -1,
  // Retries find a server that was started again; unless said, gRPC waits for up to two minutes.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2000,
};
const LOCAL = /^(127\.[\d.]+|localhost|\[::1\]|unix:.*?)(:\d+)?$/;

export class Server {
  private readonly client: grpc.Client;
  private readonly metadata = new grpc.Metadata();
  private readonly streams = new Map<string, BatchStream>();
  private readonly calls = new Set<{ cancel(): void }>();
  private isClosed = false;
  /** Until then, others are asked first: it did not answer. */
  awayUntil = 0;

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

  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>, request: MessageInitShape<I>, deadline: number,
  ): Promise<MessageShape<O>> {
    const [path, encode, decode] = coded(method);
    return new Promise((resolve, reject) => {
      const message = create(method.input, request) as MessageShape<I>;
      this.client.makeUnaryRequest(path, encode, decode, message, this.metadata, { deadline }, (error, reply) => {
        if (error !== null || reply === undefined) reject(this.failed(error as grpc.ServiceError));
        else resolve(reply);
      });
    });
  }

  /** Replies until the stream ends; who leaves the iterator, or aborts the signal, ends the call. */
  async *stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>, request: MessageInitShape<I>, deadline?: number, signal?: AbortSignal,
  ): AsyncGenerator<MessageShape<O>, void> {
    const [path, encode, decode] = coded(method);
    const message = create(method.input, request) as MessageShape<I>;
    const options = deadline === undefined ? {} : { deadline };
    const call = this.client.makeServerStreamRequest(path, encode, decode, message, this.metadata, options);
    yield* this.replies(call, signal);
  }

  /** The first reply of a stream, which is then ended. */
  async first<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>, request: MessageInitShape<I>, deadline: number,
  ): Promise<MessageShape<O>> {
    for await (const reply of this.stream(method, request, deadline)) return reply;
    throw unavailable(`${this.address} gave no reply`, false);
  }

  /**
   * The pieces of the reply to a batch. All batches go through one stream, in their order, as a new one would cost more
   * than most of them; those whose reads may wait for a level go through another one.
   */
  execute(request: MessageInitShape<typeof ExecuteRequestSchema>, deadline: number): Promise<ExecuteReply[]> {
    const lane = request.freshness !== undefined || request.freshLevels?.length ? "level" : "plain";
    let stream = this.streams.get(lane);
    if (stream === undefined || stream.hasEnded) {
      const [path, encode, decode] = coded(Pequod.method.execute);
      const call = this.client.makeBidiStreamRequest(path, encode, decode, this.metadata);
      stream = new BatchStream(call, (error) => this.failed(error));
      this.streams.set(lane, stream);
    }
    return stream.send(create(Pequod.method.execute.input, request), deadline - Date.now());
  }

  private async *replies<T>(call: grpc.ClientReadableStream<T>, signal?: AbortSignal): AsyncGenerator<T, void> {
    const leave = () => call.cancel();
    signal?.addEventListener("abort", leave);
    this.calls.add(call);
    try {
      for await (const reply of call) yield reply as T;
    } catch (error) {
      if (!signal?.aborted) throw this.failed(error as grpc.ServiceError);
    } finally {
      signal?.removeEventListener("abort", leave);
      this.calls.delete(call);
      call.cancel();
    }
  }

  private failed(error: grpc.ServiceError): Error {
    if (this.isClosed) return closed();
    if (typeof error.code !== "number") return error;
    const failed = errorOfCall(error, this.address);
    if (failed.reason === "UnavailableError") this.awayUntil = Date.now() + 1000;
    return failed;
  }

  /** Calls under way fail. */
  close(): void {
    this.isClosed = true;
    for (const call of [...this.calls, ...this.streams.values()]) call.cancel();
    this.client.close();
  }
}

interface SentBatch {
  pieces: ExecuteReply[];
  resolve: (pieces: ExecuteReply[]) => void;
  reject: (error: unknown) => void;
  timer: NodeJS.Timeout;
}

/** A stream of batches, whose replies come in the order of the batches. */
class BatchStream {
  hasEnded = false;
  private readonly sent: SentBatch[] = [];

  constructor(
    private readonly call: grpc.ClientDuplexStream<ExecuteRequest, ExecuteReply>,
    failed: (error: grpc.ServiceError) => Error,
  ) {
    call.on("data", (piece: ExecuteReply) => {
      this.sent[0]?.pieces.push(piece);
      if (piece.more) return;
      const batch = this.sent.shift();
      clearTimeout(batch?.timer);
      batch?.resolve(batch.pieces);
    });
    call.on("error", (error) => this.end(failed(error as grpc.ServiceError)));
    call.on("end", () => this.end(unavailable("the server ended the stream of batches", false)));
  }

  send(request: ExecuteRequest, timeoutMs: number): Promise<ExecuteReply[]> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.late(batch), timeoutMs);
      const batch = { pieces: [], resolve, reject, timer };
      this.sent.push(batch);
      this.call.write(request);
    });
  }

  cancel(): void {
    this.call.cancel();
  }

  /** The batches behind a late one would wait for it: those that may be sent again are, through another stream. */
  private late(batch: SentBatch): void {
    batch.reject(new PequodError("DEADLINE_EXCEEDED", "DeadlineExceededError", "the server did not answer in time"));
    this.sent.splice(this.sent.indexOf(batch), 1);
    this.end(unavailable("a batch before this one was late", false));
    this.call.cancel();
  }

  private end(error: Error): void {
    this.hasEnded = true;
    for (const { reject, timer } of this.sent.splice(0)) {
      clearTimeout(timer);
      reject(error);
    }
  }
}

const coded = <I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }) =>
  [
    `/${method.parent.typeName}/${method.name}`,
    (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
    (bytes: Buffer) => fromBinary(method.output, bytes),
  ] as const;

export const closed = () =>
  new PequodError("CANCELLED", "ClosedError", "this client has been closed; make another one");
