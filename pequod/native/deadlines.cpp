#include "deadlines.hpp"

namespace pequod {

namespace {

constexpr uint64_t NEVER = UINT64_MAX;
// More keys to a bucket, and one is added; fewer, and one is taken away.
constexpr size_t MEAN_MAX = 32, MEAN_MIN = 8;
// Buckets grow and shrink by so many entries.
constexpr uint32_t STEP = 4;

uint64_t word_of(long long at_ms, size_t hash) { return uint64_t(at_ms) << 16 | (uint64_t(hash) >> 48); }

// The greatest power of two that is not above a count.
size_t half_of(size_t count) {
    size_t half = 1;
    while (half * 2 <= count) half *= 2;
    return half;
}

size_t place_of(const Deadlines* deadlines, size_t hash) {
    const size_t half = half_of(deadlines->bucket_count), at = hash & (2 * half - 1);
    return at < deadlines->bucket_count ? at : hash & (half - 1);
}

// Where a key is in its bucket; the bucket's size: it is not there.
uint32_t find(const Bucket& bucket, size_t hash, Piece key) {
    const uint64_t mark = uint64_t(hash) >> 48;
    for (uint32_t at = 0; at < bucket.size; ++at) {
        if ((bucket.entries[at].word & 0xffff) == mark && is_equal(piece_of(bucket.entries[at].key), key)) return at;
    }
    return bucket.size;
}

uint64_t least_of(const Bucket& bucket) {
    uint64_t least = NEVER;
    for (uint32_t at = 0; at < bucket.size; ++at) {
        if (bucket.entries[at].word < least) least = bucket.entries[at].word;
    }
    return least;
}

// Set the bound of a bucket, and those above it.
void bound(Deadlines* deadlines, size_t place, uint64_t word) {
    uint64_t* least = deadlines->least;
    size_t at = deadlines->room + place;
    least[at] = word;
    for (at /= 2; at; at /= 2) {
        const uint64_t lower = least[2 * at] < least[2 * at + 1] ? least[2 * at] : least[2 * at + 1];
        if (least[at] == lower) return;
        least[at] = lower;
    }
}

bool resize(Deadlines* deadlines, Bucket* bucket, uint32_t room) {
    auto* entries = static_cast<Deadline*>(PyMem_Realloc(bucket->entries, (room ? room : 1) * sizeof(Deadline)));
    if (!entries) return false;
    deadlines->entry_bytes += (size_t(room) - bucket->room) * sizeof(Deadline);
    bucket->entries = entries;
    bucket->room = room;
    return true;
}

bool append(Deadlines* deadlines, size_t place, Deadline entry) {
    Bucket* bucket = deadlines->buckets + place;
    if (bucket->size == bucket->room && !resize(deadlines, bucket, bucket->room + STEP)) return false;
    bucket->entries[bucket->size++] = entry;
    if (entry.word < deadlines->least[deadlines->room + place]) bound(deadlines, place, entry.word);
    return true;
}

void take_out(Deadlines* deadlines, Bucket* bucket, uint32_t at) {
    bucket->entries[at] = bucket->entries[--bucket->size];
    // Without memory for a smaller array the larger one does.
    if (bucket->size + 2 * STEP <= bucket->room) resize(deadlines, bucket, bucket->room - STEP);
    --deadlines->count;
}

// Have room for so many buckets, a power of two, and their bounds.
bool make_room(Deadlines* deadlines, size_t room) {
    auto* least = static_cast<uint64_t*>(PyMem_Malloc(2 * room * sizeof(uint64_t)));
    auto* buckets = least ? static_cast<Bucket*>(PyMem_Realloc(deadlines->buckets, room * sizeof(Bucket))) : nullptr;
    if (!buckets) {
        PyMem_Free(least);
        return false;
    }
    for (size_t at = 0; at < room; ++at) {
        least[room + at] = at < deadlines->bucket_count ? deadlines->least[deadlines->room + at] : NEVER;
    }
    for (size_t at = room - 1; at; --at)
        least[at] = least[2 * at] < least[2 * at + 1] ? least[2 * at] : least[2 * at + 1];
    PyMem_Free(deadlines->least);
    deadlines->least = least;
    deadlines->buckets = buckets;
    deadlines->room = room;
    return true;
}

// Add a bucket, and give it what is its own of the one that had its keys.
bool add_bucket(Deadlines* deadlines) {
    const size_t added = deadlines->bucket_count;
    if (added == deadlines->room && !make_room(deadlines, added ? 2 * added : 1)) return false;
    deadlines->buckets[added] = {nullptr, 0, 0};
    ++deadlines->bucket_count;
    if (!added) return true;
    const size_t from = added - half_of(added);
    Bucket* bucket = deadlines->buckets + from;
    for (uint32_t at = 0; at < bucket->size;) {
        const Deadline entry = bucket->entries[at];
        if (place_of(deadlines, hash_of(piece_of(entry.key))) == from) {
            ++at;
        } else if (append(deadlines, added, entry)) {
            bucket->entries[at] = bucket->entries[--bucket->size];
        } else {
            // What was moved goes back: a bucket that was as large has the room.
            Bucket* half = deadlines->buckets + added;
            while (half->size) bucket->entries[bucket->size++] = half->entries[--half->size];
            deadlines->entry_bytes -= half->room * sizeof(Deadline);
            PyMem_Free(half->entries);
            bound(deadlines, added, NEVER);
            --deadlines->bucket_count;
            return false;
        }
    }
    const uint32_t room = (bucket->size + STEP) / STEP * STEP;
    if (room < bucket->room) resize(deadlines, bucket, room);
    return true;
}

// Give what the last bucket has to the one from which it came. Without memory it stays.
void take_bucket_away(Deadlines* deadlines) {
    const size_t last = deadlines->bucket_count - 1, to = last - half_of(last);
    Bucket* bucket = deadlines->buckets + last;
    const uint32_t size = deadlines->buckets[to].size + bucket->size;
    if (deadlines->buckets[to].room < size && !resize(deadlines, deadlines->buckets + to, size)) return;
    for (uint32_t at = 0; at < bucket->size; ++at) append(deadlines, to, bucket->entries[at]);
    deadlines->entry_bytes -= bucket->room * sizeof(Deadline);
    PyMem_Free(bucket->entries);
    bound(deadlines, last, NEVER);
    --deadlines->bucket_count;
    if (deadlines->bucket_count * 4 <= deadlines->room) make_room(deadlines, deadlines->room / 2);
}

void shrink(Deadlines* deadlines) {
    if (deadlines->bucket_count > 1 && deadlines->count < MEAN_MIN * deadlines->bucket_count) {
        take_bucket_away(deadlines);
    }
}

// The bucket with the earliest key, whose bound is right: those on the way to it are mended.
size_t first_place(Deadlines* deadlines) {
    for (;;) {
        size_t at = 1;
        while (at < deadlines->room)
            at = deadlines->least[2 * at] <= deadlines->least[2 * at + 1] ? 2 * at : 2 * at + 1;
        const size_t place = at - deadlines->room;
        const uint64_t word = least_of(deadlines->buckets[place]);
        if (word == deadlines->least[at]) return place;
        bound(deadlines, place, word);
    }
}

}  // namespace

int set(Deadlines* deadlines, PyObject* key, long long at_ms) {
    if (deadlines->count >= MEAN_MAX * deadlines->bucket_count && !add_bucket(deadlines) && !deadlines->bucket_count) {
        PyErr_NoMemory();
        return -1;
    }
    const size_t hash = hash_of(piece_of(key)), place = place_of(deadlines, hash);
    const Bucket& bucket = deadlines->buckets[place];
    const uint32_t at = find(bucket, hash, piece_of(key));
    const uint64_t word = word_of(at_ms, hash);
    if (at_ms <= deadlines->now_ms) deadlines->is_due = true;
    if (at < bucket.size) {
        bucket.entries[at].word = word;
        if (word < deadlines->least[deadlines->room + place]) bound(deadlines, place, word);
        return 0;
    }
    if (!append(deadlines, place, {key, word})) {
        PyErr_NoMemory();
        return -1;
    }
    Py_INCREF(key);
    ++deadlines->count;
    return 1;
}

bool clear(Deadlines* deadlines, Piece key) {
    if (!deadlines->count) return false;
    const size_t hash = hash_of(key);
    Bucket* bucket = deadlines->buckets + place_of(deadlines, hash);
    const uint32_t at = find(*bucket, hash, key);
    if (at == bucket->size) return false;
    PyObject* own = bucket->entries[at].key;
    take_out(deadlines, bucket, at);
    shrink(deadlines);
    // The key that was asked for may be this object.
    Py_DECREF(own);
    return true;
}

long long instant_of(const Deadlines* deadlines, Piece key) {
    if (!deadlines->count) return -1;
    const size_t hash = hash_of(key);
    const Bucket& bucket = deadlines->buckets[place_of(deadlines, hash)];
    const uint32_t at = find(bucket, hash, key);
    return at < bucket.size ? bucket.entries[at].at_ms() : -1;
}

long long first_instant(Deadlines* deadlines) {
    if (!deadlines->count) return -1;
    return static_cast<long long>(deadlines->least[deadlines->room + first_place(deadlines)] >> 16);
}

PyObject* take_due(Deadlines* deadlines) {
    if (!deadlines->count) return nullptr;
    const size_t place = first_place(deadlines);
    const uint64_t word = deadlines->least[deadlines->room + place];
    if (static_cast<long long>(word >> 16) > deadlines->now_ms) return nullptr;
    Bucket* bucket = deadlines->buckets + place;
    uint32_t at = 0;
    while (bucket->entries[at].word != word) ++at;
    PyObject* key = bucket->entries[at].key;
    take_out(deadlines, bucket, at);
    bound(deadlines, place, least_of(*bucket));
    shrink(deadlines);
    return key;
}

void clear_all(Deadlines* deadlines) {
    for (size_t place = 0; place < deadlines->bucket_count; ++place) {
        const Bucket& bucket = deadlines->buckets[place];
        for (uint32_t at = 0; at < bucket.size; ++at) Py_DECREF(bucket.entries[at].key);
        PyMem_Free(bucket.entries);
    }
    PyMem_Free(deadlines->buckets);
    PyMem_Free(deadlines->least);
    deadlines->buckets = nullptr;
    deadlines->least = nullptr;
    deadlines->bucket_count = deadlines->room = deadlines->count = deadlines->entry_bytes = 0;
}

bool is_sound(const Deadlines* deadlines) {
    size_t count = 0, room_bytes = 0;
    for (size_t place = 0; place < deadlines->bucket_count; ++place) {
        const Bucket& bucket = deadlines->buckets[place];
        for (uint32_t at = 0; at < bucket.size; ++at) {
            const size_t hash = hash_of(piece_of(bucket.entries[at].key));
            if (place_of(deadlines, hash) != place || find(bucket, hash, piece_of(bucket.entries[at].key)) != at) {
                return false;
            }
        }
        if (least_of(bucket) < deadlines->least[deadlines->room + place]) return false;
        count += bucket.size;
        room_bytes += bucket.room * sizeof(Deadline);
    }
    for (size_t place = deadlines->bucket_count; place < deadlines->room; ++place) {
        if (deadlines->least[deadlines->room + place] != NEVER) return false;
    }
    for (size_t at = 1; at < deadlines->room; ++at) {
        const uint64_t left = deadlines->least[2 * at], right = deadlines->least[2 * at + 1];
        if (deadlines->least[at] != (left < right ? left : right)) return false;
    }
    return count == deadlines->count && room_bytes == deadlines->entry_bytes;
}

}  // namespace pequod
