/** Keys, values and ranges as calls take and give them. */

/** Keys and values as arguments: text is encoded as UTF-8. */
export type Data = string | Uint8Array;
export type Row = [key: Buffer, value: Buffer];

/** The keys of [first, last) that start with the prefix; what is absent restricts nothing. */
export interface Range {
  first?: Data | undefined;
  last?: Data | undefined;
  prefix?: Data | undefined;
}

export const bytesOf = (data: Data): Uint8Array => (typeof data === "string" ? Buffer.from(data) : data);
/** The same bytes as a Buffer, which is not copied. */
export const bufferOf = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
export const maybe = (bytes: Uint8Array | undefined): Buffer | undefined => bytes && bufferOf(bytes);
export const isBefore = (key: Uint8Array, end: Uint8Array | undefined): boolean =>
  end === undefined || Buffer.compare(key, end) < 0;

/** The end of the range of all keys with a prefix; undefined if it goes to the last key. */
export function prefixEnd(prefix: Data): Buffer | undefined {
  const bytes = Buffer.from(bytesOf(prefix));
  const end = bytes.findLastIndex((byte) => byte < 0xff);
  if (end < 0) return undefined;
  bytes[end] = (bytes[end] ?? 0) + 1;
  return bytes.subarray(0, end + 1);
}

/** The bounds of a range with its prefix worked in. */
export function boundsOf({ first = "", last, prefix = "" }: Range): [first: Uint8Array, last: Uint8Array | undefined] {
  const [start, least] = [bytesOf(first), bytesOf(prefix)];
  const [stop, most] = [last === undefined ? undefined : bytesOf(last), prefixEnd(prefix)];
  return [isBefore(start, least) ? least : start, stop !== undefined && isBefore(stop, most) ? stop : most];
}

/** Bounds as fields of a request. */
export type Bounds = { first: Uint8Array; last?: Uint8Array };

export function fieldsOf(range: Range): Bounds {
  const [first, last] = boundsOf(range);
  return last === undefined ? { first } : { first, last };
}

/** Columns of keys and values as rows; without values, a row has its key twice. */
export const rowsOf = ({ keys, values }: { keys: Uint8Array[]; values: Uint8Array[] }): Row[] =>
  keys.map((key, at) => [bufferOf(key), bufferOf(values[at] ?? key)]);
