// Deadlines of keys: the twin of `Deadlines` in pequod/engine/base/deadlines.py.
//
//     least                 bounds, of all buckets      [12]
//                                                 [12]        [30]
//                                              [12]  [40]  [30]  [-]
//     buckets               keys with instants  k 12  m 40  a 30
//                                               d 47        c 95
//
// A key is in the bucket of its hash, where it is found by 16 bits of the hash that stand beside its instant. There are
// about 32 keys in a bucket; buckets are added and taken away one by one (linear hashing), so nothing takes long at
// once. The earliest instant is found by a tree of lower bounds, one for each bucket: a key that leaves a bucket may
// leave its bound too low, which is mended once the tree leads there.
//
// A deadline takes 16 bytes, and some 3 more for buckets and bounds. Its key is the object that the row has.
#pragma once

#include "hash.hpp"

namespace pequod {

// A key with its instant, in milliseconds: the upper 48 bits of a word, whose lower ones are of the key's hash.
struct Deadline {
    // Owned, exact `bytes`.
    PyObject* key;
    uint64_t word;

    long long at_ms() const { return static_cast<long long>(word >> 16); }
};

// REQUIRES of instants: 0 <= instant <= INSTANT_MAX.
constexpr long long INSTANT_MAX = (1LL << 47) - 1;

struct Bucket {
    Deadline* entries;
    uint32_t size;
    uint32_t room;
};

// Invariants:
//   1. Each key is once here, in the bucket of its hash.
//   2. `least` has 2 * room bounds: that of bucket i at room + i, no higher than any word in it and the highest where
//      it is empty; and each other one, but the unused first, is the lower of the two below it.
//   3. There is no bucket while `count` is 0 at the beginning, and one at least later on.
struct Deadlines {
    PyObject_HEAD
    Bucket* buckets;
    uint64_t* least;
    size_t bucket_count;
    // How many buckets and bounds there is room for: a power of two, or 0.
    size_t room;
    size_t count;
    size_t entry_bytes;
    // The present instant, as it was told last.
    long long now_ms;
    // Whether a key is, or was a moment ago, due at the present instant. Changed by `tell` and what follows it.
    char is_due;
};

extern PyTypeObject* deadlines_type;

inline Deadlines* deadlines_of(PyObject* object) { return reinterpret_cast<Deadlines*>(object); }

// Set the instant of a key. 1: it had none; 0: it had another; -1: an error is set.
int set(Deadlines* deadlines, PyObject* key, long long at_ms);

// Take the instant of a key away; whether it had one.
bool clear(Deadlines* deadlines, Piece key);

// The instant of a key; -1: it has none.
long long instant_of(const Deadlines* deadlines, Piece key);

// The earliest instant; -1: there is none.
long long first_instant(Deadlines* deadlines);

// Take the earliest key out, which the caller owns, if its instant is not behind the present one; else null.
PyObject* take_due(Deadlines* deadlines);

// Forget all.
void clear_all(Deadlines* deadlines);

// The invariants hold.
bool is_sound(const Deadlines* deadlines);

int add_deadlines_type(PyObject* module);

}  // namespace pequod
