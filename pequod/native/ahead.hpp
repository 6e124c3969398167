// What the next commands of a batch look at, fetched in advance.
#pragma once

#include "verbs.hpp"

namespace pequod {

// For how many commands that is done at once.
constexpr size_t COMMANDS_AHEAD = 32;

// Commands that come next: their kinds, and the arguments of all of them.
struct Upcoming {
    const unsigned char* kinds;
    size_t count;
    const Piece* arguments;
};

// Fetch what some commands will look at, no more than `COMMANDS_AHEAD` of them, and say what was seen. Nothing but time
// depends on it.
void look_ahead(const HotEngine* engine, const Upcoming& upcoming, Seen* seen);

}  // namespace pequod
