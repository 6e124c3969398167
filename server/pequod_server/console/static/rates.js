// From two looks at the statistics: operations a second, how long they took, what was evicted, what is hot.

const READS = new Set(["Get", "MultiGet", "Scan", "Count", "Ttl"]);
const WRITES = new Set(["Put", "Remove", "WriteIf", "Transaction", "Add", "Expire", "MultiPut", "RemoveRange"]);
const READ_COMMANDS = new Set(["GET", "SCAN", "SCAN_LIMIT", "SCAN_DOWN", "COUNT", "TTL"]);

export function between(before, now) {
  const elapsed = (now.at - before.at) / 1000;
  const {reads, writes} = operations(now);
  const earlier = operations(before);
  // A server that was started again counts from 0.
  const isSame = reads >= earlier.reads && writes >= earlier.writes;
  const buckets = isSame ? minus(bucketsOf(now), bucketsOf(before)) : bucketsOf(now);
  const bounds = now.call_bounds_s;
  return {
    at: now.at,
    reads: isSame ? (reads - earlier.reads) / elapsed : null,
    writes: isSame ? (writes - earlier.writes) / elapsed : null,
    p50: percentile(buckets, bounds, 0.5),
    p95: percentile(buckets, bounds, 0.95),
    p99: percentile(buckets, bounds, 0.99),
    memory: now.memory?.total_bytes ?? null,
    process: now.memory?.process_bytes || null,
    evictions: difference(before.memory?.evictions, now.memory?.evictions, elapsed),
    joins: Object.fromEntries(now.joins.map((join) => [join.join, joinRates(before, join, elapsed)])),
  };
}

function joinRates(before, join, elapsed) {
  const earlier = before.joins.find((one) => one.join === join.join);
  if (!earlier || earlier.hits > join.hits) return {hits: 0, computed: 0, applied: 0};
  return {
    hits: (join.hits - earlier.hits) / elapsed,
    computed: (join.rows_computed - earlier.rows_computed) / elapsed,
    applied: (join.log_applied - earlier.log_applied) / elapsed,
  };
}

function difference(before, now, elapsed) {
  return now === undefined || before === undefined || now < before ? null : (now - before) / elapsed;
}

// Commands count, and calls of one command.
export function operations(statistics) {
  let reads = 0,
    writes = 0;
  for (const {method, calls} of statistics.calls) {
    if (READS.has(method)) reads += calls;
    else if (WRITES.has(method)) writes += calls;
  }
  for (const [kind, number] of Object.entries(statistics.commands)) {
    if (READ_COMMANDS.has(kind)) reads += number;
    else writes += number;
  }
  return {reads, writes};
}

// How many calls of data and batches fell into each bucket of time.
function bucketsOf(statistics) {
  const sums = new Array(statistics.call_bounds_s.length + 1).fill(0);
  for (const {method, buckets} of statistics.calls) {
    if (READS.has(method) || WRITES.has(method) || method === "Execute")
      buckets.forEach((number, at) => {
        sums[at] += number;
      });
  }
  return sums;
}

function minus(now, before) {
  return now.map((number, at) => number - (before[at] ?? 0));
}

// The time up to which a share of the calls took, by a straight line within its bucket; null: there were none.
export function percentile(buckets, bounds, share) {
  const total = buckets.reduce((sum, number) => sum + number, 0);
  if (!total) return null;
  let left = total * share;
  for (let at = 0; at < buckets.length; at++) {
    if (left <= buckets[at]) {
      const low = at ? bounds[at - 1] : 0;
      return at < bounds.length ? low + (bounds[at] - low) * (left / buckets[at]) : low;
    }
    left -= buckets[at];
  }
  return bounds.at(-1);
}
