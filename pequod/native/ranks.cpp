#include "ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "arguments.hpp"
#include "hash.hpp"

namespace pequod {

namespace {

// RFC 7693, 2.6 and 2.7.
constexpr uint64_t START[HASH_WORDS] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                        0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr size_t ROUNDS = 12;
constexpr uint8_t ORDERS[10][BLOCK_WORDS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};
// A hash of 8 bytes, keyed, of one leaf: the first word of the parameters, without the size of the key.
constexpr uint64_t PARAMETERS = 0x01010008;

// Two words at once on any machine; where a processor has more lanes, versions for those are chosen at run time.
typedef uint64_t Two __attribute__((vector_size(16)));
typedef uint64_t Four __attribute__((vector_size(32)));
typedef uint64_t Eight __attribute__((vector_size(64)));

#define PEQUOD_INLINE __attribute__((always_inline)) inline

template <int Bits, typename Lanes>
PEQUOD_INLINE void turn(Lanes& word) {
    word = (word >> Bits) | (word << (64 - Bits));
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
// AVX2 has no instruction that turns words, and one that moves their bytes: a quarter of the time of all.
template <int Bytes>
PEQUOD_INLINE void turn_bytes(Four& word) {
    typedef uint8_t All __attribute__((vector_size(32)));
    All all;
    std::memcpy(&all, &word, sizeof all);
#define PEQUOD_FROM(at) ((at) / 8 * 8 + ((at) + Bytes) % 8)
#define PEQUOD_WORD(at)                                                                                  \
    PEQUOD_FROM(at), PEQUOD_FROM(at + 1), PEQUOD_FROM(at + 2), PEQUOD_FROM(at + 3), PEQUOD_FROM(at + 4), \
        PEQUOD_FROM(at + 5), PEQUOD_FROM(at + 6), PEQUOD_FROM(at + 7)
    all = __builtin_shufflevector(all, all, PEQUOD_WORD(0), PEQUOD_WORD(8), PEQUOD_WORD(16), PEQUOD_WORD(24));
#undef PEQUOD_WORD
#undef PEQUOD_FROM
    std::memcpy(&word, &all, sizeof all);
}
template <>
PEQUOD_INLINE void turn<32>(Four& word) {
    turn_bytes<4>(word);
}
template <>
PEQUOD_INLINE void turn<24>(Four& word) {
    turn_bytes<3>(word);
}
template <>
PEQUOD_INLINE void turn<16>(Four& word) {
    turn_bytes<2>(word);
}
#endif
#endif

template <typename Lanes>
PEQUOD_INLINE void mix(Lanes& a, Lanes& b, Lanes& c, Lanes& d, const Lanes& one, const Lanes& other) {
    a += b + one;
    d ^= a;
    turn<32>(d);
    c += d;
    b ^= c;
    turn<24>(b);
    a += b + other;
    d ^= a;
    turn<16>(d);
    c += d;
    b ^= c;
    turn<63>(b);
}

// Take a block into the words of a hash, in each lane one of its own (RFC 7693, 3.2).
template <typename Lanes>
PEQUOD_INLINE void take(Lanes* hash, const Lanes* block, uint64_t bytes_so_far, bool is_last) {
    Lanes v[2 * HASH_WORDS];
    for (size_t at = 0; at < HASH_WORDS; ++at) {
        v[at] = hash[at];
        v[HASH_WORDS + at] = Lanes{} + START[at];
    }
    v[12] ^= bytes_so_far;
    if (is_last) v[14] = ~v[14];
    // With the orders known to the compiler, it takes an eighth less.
#pragma GCC unroll 12
    for (size_t round = 0; round < ROUNDS; ++round) {
        const uint8_t* at = ORDERS[round % 10];
        mix(v[0], v[4], v[8], v[12], block[at[0]], block[at[1]]);
        mix(v[1], v[5], v[9], v[13], block[at[2]], block[at[3]]);
        mix(v[2], v[6], v[10], v[14], block[at[4]], block[at[5]]);
        mix(v[3], v[7], v[11], v[15], block[at[6]], block[at[7]]);
        mix(v[0], v[5], v[10], v[15], block[at[8]], block[at[9]]);
        mix(v[1], v[6], v[11], v[12], block[at[10]], block[at[11]]);
        mix(v[2], v[7], v[8], v[13], block[at[12]], block[at[13]]);
        mix(v[3], v[4], v[9], v[14], block[at[14]], block[at[15]]);
    }
    for (size_t at = 0; at < HASH_WORDS; ++at) hash[at] ^= v[at] ^ v[HASH_WORDS + at];
}

// The hashes of a last block: all lanes have the same one.
template <typename Lanes>
PEQUOD_INLINE void hash_all(const uint64_t* keyed, size_t lanes_count, const uint64_t* words, uint64_t bytes,
                            uint64_t* hashes) {
    constexpr size_t LANES = sizeof(Lanes) / sizeof(uint64_t);
    Lanes block[BLOCK_WORDS], hash[HASH_WORDS];
    for (size_t at = 0; at < BLOCK_WORDS; ++at) block[at] = Lanes{} + words[at];
    for (size_t many = 0; many < lanes_count; ++many) {
        for (size_t lane = 0; lane < RANK_LANES; lane += LANES) {
            const uint64_t* start = keyed + many * RANK_LANES * HASH_WORDS + lane;
            for (size_t at = 0; at < HASH_WORDS; ++at) std::memcpy(&hash[at], start + at * RANK_LANES, sizeof(Lanes));
            take(hash, block, bytes, true);
            std::memcpy(hashes + many * RANK_LANES + lane, &hash[0], sizeof(Lanes));
        }
    }
}

using HashAll = void (*)(const uint64_t*, size_t, const uint64_t*, uint64_t, uint64_t*);

void hash_by_two(const uint64_t* keyed, size_t lanes_count, const uint64_t* words, uint64_t bytes, uint64_t* hashes) {
    hash_all<Two>(keyed, lanes_count, words, bytes, hashes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void hash_by_four(const uint64_t* keyed, size_t lanes_count, const uint64_t* words,
                                                  uint64_t bytes, uint64_t* hashes) {
    hash_all<Four>(keyed, lanes_count, words, bytes, hashes);
}

__attribute__((target("avx512f"))) void hash_by_eight(const uint64_t* keyed, size_t lanes_count, const uint64_t* words,
                                                      uint64_t bytes, uint64_t* hashes) {
    hash_all<Eight>(keyed, lanes_count, words, bytes, hashes);
}
#endif

// The versions that this processor can run, by the lanes that they use at once; null: it cannot.
HashAll version_of(int lanes) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (lanes == 8) return __builtin_cpu_supports("avx512f") ? hash_by_eight : nullptr;
    if (lanes == 4) return __builtin_cpu_supports("avx2") ? hash_by_four : nullptr;
#endif
    return lanes == 2 ? hash_by_two : nullptr;
}

HashAll fastest() {
    for (const int lanes : {8, 4})
        if (const HashAll found = version_of(lanes)) return found;
    return hash_by_two;
}

HashAll chosen = fastest();

// The words of a block, filled up with zeros.
void fill(const char* text, size_t size, uint64_t* words) {
    char block[BLOCK_BYTES] = {};
    std::memcpy(block, text, size);
    for (size_t at = 0; at < BLOCK_WORDS; ++at) words[at] = word_at(block + 8 * at);
}

}  // namespace

void hash_group(const uint64_t* keyed, size_t lanes_count, const char* group, size_t size, uint64_t* hashes) {
    uint64_t words[BLOCK_WORDS];
    fill(group, size, words);
    chosen(keyed, lanes_count, words, BLOCK_BYTES + size, hashes);
    // The first byte of a hash is the lowest one of its word.
    for (size_t at = 0; at < lanes_count * RANK_LANES; ++at) hashes[at] = __builtin_bswap64(hashes[at]);
}

void key_by(uint64_t* keyed, size_t server, const char* id, size_t size) {
    uint64_t words[BLOCK_WORDS];
    fill(id, size, words);
    Two block[BLOCK_WORDS], hash[HASH_WORDS];
    for (size_t word = 0; word < BLOCK_WORDS; ++word) block[word] = Two{} + words[word];
    for (size_t word = 0; word < HASH_WORDS; ++word) hash[word] = Two{} + START[word];
    hash[0] ^= PARAMETERS ^ uint64_t(size) << 8;
    take(hash, block, BLOCK_BYTES, false);
    uint64_t* place = keyed + server / RANK_LANES * RANK_LANES * HASH_WORDS + server % RANK_LANES;
    for (size_t word = 0; word < HASH_WORDS; ++word) std::memcpy(place + RANK_LANES * word, &hash[word], 8);
}

namespace {

// A hash as a number between 0 and 1, which is neither.
double even_of(uint64_t hash) { return (double(hash >> 12) + 0.5) / 4503599627370496.0; }

}  // namespace

double score_of(uint64_t hash, double weight) { return -weight / std::log(even_of(hash)); }

namespace {

// keyed(ids): the words of the hashes that are keyed by ids, as `hash_group` takes them; those of the last lanes
// without a server are zero.
PyObject* keyed(PyObject*, PyObject* ids) {
    if (!PyList_Check(ids)) {
        PyErr_SetString(PyExc_TypeError, "keyed takes a list of ids");
        return nullptr;
    }
    const size_t count = size_t(PyList_GET_SIZE(ids)), bytes = lanes_count_of(count) * RANK_LANES * HASH_WORDS * 8;
    PyObject* made = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(bytes));
    if (!made) return nullptr;
    std::memset(PyBytes_AS_STRING(made), 0, bytes);
    for (size_t at = 0; at < count; ++at) {
        PyObject* id = PyList_GET_ITEM(ids, Py_ssize_t(at));
        if (!PyBytes_Check(id) || !PyBytes_GET_SIZE(id) || size_t(PyBytes_GET_SIZE(id)) > KEY_BYTES_MAX) {
            Py_DECREF(made);
            PyErr_SetString(PyExc_ValueError, "an id is bytes, from 1 to 64 of them");
            return nullptr;
        }
        key_by(reinterpret_cast<uint64_t*>(PyBytes_AS_STRING(made)), at, PyBytes_AS_STRING(id),
               size_t(PyBytes_GET_SIZE(id)));
    }
    return made;
}

struct Ranked {
    double score;
    size_t server;

    bool operator<(const Ranked& other) const {
        return score > other.score || (score == other.score && server > other.server);
    }
};

// The first servers by their scores. Returns how many.
//
// REQUIRES: there is room for `wanted` of them, at least one.
size_t rank(const uint64_t* hashes, const char* weights, size_t count, Ranked* first, size_t wanted) {
    // -ln(u) is at least 1 - u, so most scores are seen to be too low without a logarithm; this is for rounding.
    constexpr double MORE = 1 + 1e-12;
    size_t found = 0;
    for (size_t at = 0; at < count; ++at) {
        double weight;
        std::memcpy(&weight, weights + at * sizeof weight, sizeof weight);
        if (found == wanted && weight * MORE < first[found - 1].score * (1 - even_of(hashes[at]))) continue;
        const Ranked one{score_of(hashes[at], weight), at};
        if (found == wanted) {
            if (!(one < first[found - 1])) continue;
            --found;
        }
        Ranked* place = std::upper_bound(first, first + found, one);
        std::move_backward(place, first + found, first + found + 1);
        *place = one;
        ++found;
    }
    return found;
}

// first_ranked(keyed, weights, group, wanted)
PyObject* first_ranked(PyObject*, PyObject* const* arguments, Py_ssize_t argument_count) {
    if (argument_count != 4 || !PyBytes_Check(arguments[0]) || !PyBytes_Check(arguments[1]) ||
        !PyBytes_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "first_ranked takes the words of hashes, weights, a group, and a number");
        return nullptr;
    }
    const size_t wanted = PyLong_AsSize_t(arguments[3]);
    if (wanted == size_t(-1) && PyErr_Occurred()) return nullptr;
    const size_t count = size_t(PyBytes_GET_SIZE(arguments[1])) / sizeof(double), lanes_count = lanes_count_of(count);
    const size_t size = size_t(PyBytes_GET_SIZE(arguments[2]));
    if (size_t(PyBytes_GET_SIZE(arguments[0])) != lanes_count * RANK_LANES * HASH_WORDS * 8 || !size ||
        size > BLOCK_BYTES || !wanted) {
        PyErr_SetString(PyExc_ValueError, "the words are of other servers, or the group is empty or long");
        return nullptr;
    }
    const size_t most = std::min(wanted, count);
    if (!most) return PyList_New(0);
    std::unique_ptr<uint64_t[]> hashes(new (std::nothrow) uint64_t[lanes_count * RANK_LANES]);
    std::unique_ptr<Ranked[]> first(new (std::nothrow) Ranked[most]);
    if (!hashes || !first) return PyErr_NoMemory();
    hash_group(reinterpret_cast<const uint64_t*>(PyBytes_AS_STRING(arguments[0])), lanes_count,
               PyBytes_AS_STRING(arguments[2]), size, hashes.get());
    const size_t found = rank(hashes.get(), PyBytes_AS_STRING(arguments[1]), count, first.get(), most);
    PyObject* list = PyList_New(Py_ssize_t(found));
    for (size_t at = 0; list && at < found; ++at) {
        PyObject* number = PyLong_FromSize_t(first[at].server);
        if (!number)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, Py_ssize_t(at), number);
    }
    return list;
}

// use_lanes(lanes): for tests, which try all versions; returns whether this processor has it. 0: the fastest one.
PyObject* use_lanes(PyObject*, PyObject* lanes) {
    const long wanted = PyLong_AsLong(lanes);
    if (wanted == -1 && PyErr_Occurred()) return nullptr;
    const HashAll found = wanted ? version_of(int(wanted)) : fastest();
    if (found) chosen = found;
    return PyBool_FromLong(found != nullptr);
}

PyMethodDef functions[] = {
    {"keyed", keyed, METH_O, "The words of hashes that are keyed by the ids of servers."},
    {"first_ranked", as_function(first_ranked), METH_FASTCALL,
     "The numbers of the first servers for a group, by rendezvous hashing with weights."},
    {"use_lanes", use_lanes, METH_O, "Hash with this number of lanes from now on, if the processor has them."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_rank_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
