// The first servers of a group by rendezvous hashing (`pequod/cluster/ranking.py`, which is the reference).
//
// A server's hash of a group is BLAKE2b (RFC 7693) of 8 bytes, keyed by the server's id. The block with the key is the
// same for all groups, so what follows from it is kept: a group of up to 128 bytes then takes one block for each
// server. Blocks of several servers are worked out at once, one in each lane of a vector.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

namespace pequod {

// Servers whose words lie together: the first words of eight servers, then their second words, and so on.
constexpr size_t RANK_LANES = 8;
constexpr size_t HASH_WORDS = 8;
constexpr size_t BLOCK_WORDS = 16;
constexpr size_t BLOCK_BYTES = 8 * BLOCK_WORDS;
// Ids have 63 bytes; keys of BLAKE2b may have one more.
constexpr size_t KEY_BYTES_MAX = 64;

// How many times eight servers these are.
inline size_t lanes_count_of(size_t server_count) { return (server_count + RANK_LANES - 1) / RANK_LANES; }

// Put the words of a hash that is keyed by an id of 1 to KEY_BYTES_MAX bytes at the place of a server.
void key_by(uint64_t* keyed, size_t server, const char* id, size_t size);

// The score of a server for a group, by its hash: -weight / ln(u), as `score` in pequod/cluster/rendezvous.py says.
double score_of(uint64_t hash, double weight);

// The hashes of a group, of `lanes_count` times eight servers, as the numbers that their bytes say, the first one
// highest.
//
// REQUIRES: `size` is from 1 to BLOCK_BYTES.
void hash_group(const uint64_t* keyed, size_t lanes_count, const char* group, size_t size, uint64_t* hashes);

int add_rank_functions(PyObject* module);

}  // namespace pequod
