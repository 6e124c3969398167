export { Batch, type Calls, type Compare, type Page, type Transacted } from "./calls.js";
export { Client, Session } from "./client.js";
export { Commands, type Results } from "./columns.js";
export type { Condition, Lifetime, Result, Written } from "./command.js";
export { type Data, type Range, type Row, prefixEnd } from "./data.js";
export { type Code, PequodError, type Reason } from "./errors.js";
export { type Freshness, Token } from "./freshness.js";
export type { Options } from "./link.js";
export type { Change, WatchEvent, WatchOptions } from "./watch.js";
