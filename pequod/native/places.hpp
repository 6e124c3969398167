// Hash tables with open addressing: places in one array, a power of two of them, at most half of them taken, or as many
// eighths as `MOST` says.
//
// A place has `hash`, `key()`, and `is_free()`; one whose bytes are all 0 is free. Keys are compared in full.
#pragma once

#include "hash.hpp"

#include <utility>

namespace pequod {

template <typename Place, size_t MOST = 4>
struct Places {
    Place* places;
    size_t place_count;
    size_t size;

    // The place of a key, or null; until the next change.
    Place* find(size_t hash, Piece key) const {
        if (!size) return nullptr;
        Place& found = places[place_of(hash, key)];
        return found.is_free() ? nullptr : &found;
    }

    // Where a key of this hash is first looked for; null if there are none.
    const Place* home(size_t hash) const { return size ? places + (hash & (place_count - 1)) : nullptr; }

    // What is most likely the place of a key, for fetching what it refers to; null: it is not there.
    const Place* guess(size_t hash) const {
        if (!size) return nullptr;
        for (size_t at = hash & (place_count - 1); !places[at].is_free(); at = (at + 1) & (place_count - 1)) {
            if (places[at].hash == hash) return places + at;
        }
        return nullptr;
    }

    // The free place where a new key would be; null: there is no memory, an error is set.
    Place* room_for(size_t hash, Piece key) {
        if (8 * (size + 1) > MOST * place_count && !resize(place_count ? 2 * place_count : 8)) return nullptr;
        ++size;
        return places + place_of(hash, key);
    }

    // Free a place, whose content is the caller's. What stands behind moves up as far as it may, so that no look-up
    // meets a gap before its key.
    void free(Place* place) {
        const size_t mask = place_count - 1;
        size_t gap = size_t(place - places);
        for (size_t at = (gap + 1) & mask; !places[at].is_free(); at = (at + 1) & mask) {
            const size_t wanted = places[at].hash & mask;
            if (((at - wanted) & mask) >= ((at - gap) & mask)) {
                places[gap] = places[at];
                gap = at;
            }
        }
        places[gap] = Place{};
        --size;
        // Too large does no harm.
        if (place_count > 8 && 8 * size < place_count && !resize(place_count / 2)) PyErr_Clear();
    }

    // Free all places, and give each taken one to a function.
    template <typename Function>
    void clear(Function function) {
        Place* former = std::exchange(places, nullptr);
        const size_t former_count = std::exchange(place_count, 0);
        size = 0;
        for (size_t at = 0; at < former_count; ++at) {
            if (!former[at].is_free()) function(former[at]);
        }
        PyMem_Free(former);
    }

  private:
    // The place of a key, or the free one where it would be.
    size_t place_of(size_t hash, Piece key) const {
        size_t at = hash & (place_count - 1);
        while (!places[at].is_free()) {
            if (places[at].hash == hash && is_equal(places[at].key(), key)) break;
            at = (at + 1) & (place_count - 1);
        }
        return at;
    }

    bool resize(size_t count) {
        Place* fresh = static_cast<Place*>(PyMem_Calloc(count, sizeof(Place)));
        if (!fresh) {
            PyErr_NoMemory();
            return false;
        }
        Place* former = std::exchange(places, fresh);
        const size_t former_count = std::exchange(place_count, count);
        for (size_t at = 0; at < former_count; ++at) {
            if (!former[at].is_free()) places[place_of(former[at].hash, former[at].key())] = former[at];
        }
        PyMem_Free(former);
        return true;
    }
};

}  // namespace pequod
