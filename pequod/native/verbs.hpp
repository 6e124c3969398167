// The verbs of an engine: put, remove, get, scan and apply, for what takes a look-up and a copy.
//
// A verb is done, or not quick: then nothing has changed, and Python does the command. Not quick are keys without a
// table, writes of keys that joins compute, that are watched, or of a database but for `apply`; writes that Python has
// to admit or to tell watches of; reads of what is not loaded; reads of base keys, and removals, while a key is due;
// and reads of more than one group, or of more than one context. A put is done once its row is written: what waits for
// it and is Python's is brought up to date there (telling.cpp).
#pragma once

#include "integers.hpp"
#include "writing.hpp"

namespace pequod {

Ran put(HotEngine* engine, Piece key, Piece value);
Ran remove(HotEngine* engine, Piece key);
// The same of exact `bytes` that exist.
Ran put(HotEngine* engine, PyObject* key, PyObject* value);
Ran remove(HotEngine* engine, PyObject* key);

// A time to live is of milliseconds from the present instant on, which the deadlines were told; KEEP_TTL: the key
// expires when it would have without the write; 0: never. A time beyond a hundred years is Python's to refuse.
constexpr uint64_t KEEP_TTL = ~uint64_t(0);
// Put a key that expires.
Ran put_for(HotEngine* engine, Piece key, Piece value, uint64_t ttl_ms);
// Put many rows that expire, all or none; more of them are not quick.
constexpr size_t KEYS_MAX = 256;
Ran put_all(HotEngine* engine, const Piece* keys, const Piece* values, size_t count, uint64_t ttl_ms);
// Have a key that is there expire, or (0) live for ever. Absent: it is not there.
Ran set_time(HotEngine* engine, Piece key, uint64_t ttl_ms);
// How many milliseconds a key has left; absent: it is not there.
constexpr uint64_t NO_DEADLINE = ~uint64_t(0);
Ran time_left(HotEngine* engine, Piece key, double now, uint64_t* left_ms);

// Remove the earliest key that is due, which has no deadline from now on. Not quick: it is Python's to remove; absent:
// none is due. The caller owns the key if it is not quick.
Ran expire(HotEngine* engine, PyObject** key);

// What was seen of a command in advance.
struct Seen {
    // Of the end of a scan.
    size_t hash;
    // Where the key of a GET, or of a write that looks at its value, was, null if it was not looked for. It is a guess:
    // the rows may have changed since.
    const SortedRows* rows;
    size_t leaf;
    size_t at;

    // The value of a key among rows, if it is where it was seen; else null.
    PyObject* value_in(SortedRows* found, Piece key) const {
        if (found != rows || leaf > found->older_size) return nullptr;
        const Leaf& present = found->leaf(leaf);
        return at < present.size && is_equal(present.key(at), key) ? present.entries[at].value : nullptr;
    }
};

// What a write asks of the present value of its key, as pequod/language/conditions.py numbers it.
enum ConditionNumber : unsigned char { IF_ABSENT = 1, IF_PRESENT, IF_VALUE };

// What the present value of a key has to be before it is written; other numbers are not quick.
struct Condition {
    uint64_t number;
    // Only IF_VALUE has it.
    Piece expected;
};

// Put or remove a key if its present value meets a condition. ABSENT: it does not, since there is none; UNMET: it does
// not, and is lent until the next change.
Ran put_if(HotEngine* engine, Piece key, Piece value, uint64_t ttl_ms, const Condition& condition, const Seen& seen,
           PyObject** present);
Ran remove_if(HotEngine* engine, Piece key, const Condition& condition, const Seen& seen, PyObject** present);

// Add an integer to that of a key, 0 if it is absent, and write the sum. Not quick is what is no plain integer.
Ran add(HotEngine* engine, Piece key, Piece delta, const Seen& seen, Integer* total);

// Find the value of a key, stored or in a fresh context; the reference is borrowed, until the next change.
Ran get(HotEngine* engine, Piece key, const Seen& seen, double now, PyObject** value);

// The rows that a scan gives: those of [start, stop), with a prefix before their keys.
struct Span {
    // Null: there are none.
    SortedRows* rows;
    Place start;
    Place stop;
    Piece prefix;
    // Whose rows these are; null: a table's.
    Hot* context;
};

// Find the rows of `[first, last)`: of a table that clients write, of the context that is known by this end, whose hash
// it is, or of a fresh one that has them inside. A stale context answers after its log was applied, if `may_refresh`.
Ran find_span(HotEngine* engine, Piece first, Piece last, size_t hash, double now, bool may_refresh, Span* span);

// Count that a scan was answered by a span.
void count_hit(HotEngine* engine, const Span& span);

// Find the rows that have all keys of `[first, last)`, which no join computes and which are loaded; null: there are
// none.
Ran rows_between(HotEngine* engine, Piece first, Piece last, SortedRows** rows);

// How a change of a database went.
enum class Applied { YES, NOT_LOADED, NOT_QUICK, FAILED };

// Apply a change of a loaded key, and count the rows that follow. A value that is not `bytes` is not quick.
Applied apply(HotEngine* engine, PyObject* key, PyObject* value, size_t* told);

}  // namespace pequod
