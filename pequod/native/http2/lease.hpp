// What a role with quotas may use before Python counts again: hot calls take of it, Python lends it.
//
//     turn -> Python counts what was taken, and lends anew -> calls: has, take -> the next turn
#pragma once

#include "../arguments.hpp"

namespace pequod::http2 {

// What an add stores at the most, as pequod_server/access/quotas.py has it.
constexpr size_t SUM_BYTES = 24;

// What a call uses of quotas at the most.
struct Use {
    long long commands, keys, bytes;
};

// `Lease`. Python sets the numbers between runs, runs of hot calls lower them.
struct Lease {
    PyObject_HEAD
    long long commands, keys, bytes;
};

extern PyTypeObject* lease_type;

// Whether a use is lent; null lends everything.
inline bool has(const Lease* lease, const Use& use) {
    return !lease || (use.commands <= lease->commands && use.keys <= lease->keys && use.bytes <= lease->bytes);
}

inline void take(Lease* lease, const Use& use) {
    if (!lease) return;
    lease->commands -= use.commands;
    lease->keys -= use.keys;
    lease->bytes -= use.bytes;
}

int add_lease_type(PyObject* module);

}  // namespace pequod::http2
