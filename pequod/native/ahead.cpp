#include "ahead.hpp"

#include "fetch.hpp"
#include "messages.hpp"

namespace pequod {

namespace {

constexpr size_t VALUE_LINES = 4;

// The search for a key in rows: for the leaf, then in the leaf.
struct Search {
    // Null: nothing is searched.
    const SortedRows* rows;
    // Null until it is found.
    const Leaf* leaf;
    Piece key;
    size_t low;
    size_t high;

    Search() : rows(nullptr), leaf(nullptr), key{nullptr, 0}, low(0), high(0) {}
    Search(const SortedRows* in, Piece wanted)
        : rows(in && in->last.size ? in : nullptr), leaf(nullptr), key(wanted), low(0),
          high(in ? in->older_size + 1 : 0) {
        if (high == 1) enter(0);
    }

    // Say where the key is, and fetch the beginning of its value: the processor itself finds out how it goes on.
    void tell(Seen* seen) const {
        if (!leaf || low >= leaf->size) return;
        *seen = {0, rows, leaf == &rows->last ? rows->older_size : size_t(leaf - rows->older), low};
        const char* value = reinterpret_cast<const char*>(leaf->entries[low].value);
        for (size_t line = 0; line < VALUE_LINES; ++line) fetch(value + 64 * line);
    }

    bool is_under_way() const { return rows && low < high; }

    // What the next step looks at.
    const Entry* middle() const {
        const size_t at = low + (high - low) / 2;
        return leaf ? leaf->entries + at : leaf_at(at)->entries;
    }

    void step() {
        const Entry* entry = middle();
        const size_t at = low + (high - low) / 2;
        const int order = compare(piece_of(entry->key), key);
        if (leaf ? order < 0 : order <= 0) {
            low = at + 1;
        } else {
            high = at;
        }
        if (!leaf && low == high) enter(low ? low - 1 : 0);
    }

  private:
    const Leaf* leaf_at(size_t index) const { return index < rows->older_size ? rows->older + index : &rows->last; }

    void enter(size_t index) {
        if (!rows) return;
        leaf = leaf_at(index);
        low = 0;
        high = leaf->size;
    }
};

// What a command most likely looks at: an end, if it stands where it is first looked for, or the rows of a key.
struct Ahead {
    const End* end;
    TablesAhead::Guess guess;
    Piece key;

    const SortedRows* rows() const {
        if (!end) return guess.rows();
        PyObject* rows = end->context ? hot_of(end->context)->rows : nullptr;
        return is_rows(rows) ? reinterpret_cast<const SortedRows*>(rows) : nullptr;
    }
};

void fetch_records(const Ahead& ahead) {
    if (ahead.end) {
        fetch(ahead.end->last);
        fetch(ahead.end->context);
        fetch(reinterpret_cast<const char*>(ahead.end->context) + 64);
    } else {
        fetch(ahead.rows());
    }
}

void fetch_rows(const Ahead& ahead) {
    if (!ahead.end || !ahead.end->context) return;
    fetch(hot_of(ahead.end->context)->rows);
    fetch(hot_of(ahead.end->context)->prefix);
}

void fetch_entries(const Ahead& ahead) {
    const SortedRows* rows = ahead.rows();
    if (rows && rows->last.size) fetch(rows->last.entries + rows->last.size - 1);
}

// A check begins with the last row, and a key that is put is compared with it first.
void fetch_last_row(const Ahead& ahead) {
    const SortedRows* rows = ahead.rows();
    if (!rows || !rows->last.size) return;
    const Entry& entry = rows->last.entries[rows->last.size - 1];
    fetch(entry.key);
    if (ahead.end) fetch(entry.value);
}

// Whether a command looks at the value of its key, and goes by what was seen of it.
bool sees_value(unsigned char kind) {
    const KindRow& row = KIND_ROWS[kind];
    return tells_value(row) || (row.gives == Gives::VALUE && !row.is_of_range);
}

// So few searches have little to wait for together, and would only be done twice: of Twip, 5 % of the whole run.
constexpr size_t SEARCHES_MIN = 8;

// Search for the keys, a step of each in turn: by itself each step would wait for the memory twice.
void search_all(const Ahead* ahead, const unsigned char* kinds, size_t count, Seen* seen) {
    size_t searched = 0;
    for (size_t at = 0; at < count; ++at) searched += !ahead[at].end;
    if (searched < SEARCHES_MIN) return;
    Search all[COMMANDS_AHEAD];
    searched = 0;
    for (size_t at = 0; at < count; ++at) {
        if (!ahead[at].end) all[searched++] = Search(ahead[at].rows(), ahead[at].key);
    }
    for (bool is_done = false; !is_done;) {
        is_done = true;
        for (size_t at = 0; at < searched; ++at) {
            if (all[at].is_under_way()) fetch(all[at].middle());
        }
        for (size_t at = 0; at < searched; ++at) {
            if (all[at].is_under_way()) fetch(all[at].middle()->key);
        }
        for (size_t at = 0; at < searched; ++at) {
            if (!all[at].is_under_way()) continue;
            all[at].step();
            is_done = false;
        }
    }
    for (size_t at = 0, number = 0; at < count; ++at) {
        if (ahead[at].end) continue;
        if (sees_value(kinds[at])) all[number].tell(seen + at);
        ++number;
    }
}

}  // namespace

void look_ahead(const HotEngine* engine, const Upcoming& upcoming, Seen* seen) {
    const Ends* ends = reinterpret_cast<const Ends*>(engine->ends);
    TablesAhead tables(engine->relations);
    Ahead ahead[COMMANDS_AHEAD];
    const Piece* argument = upcoming.arguments;
    for (size_t at = 0; at < upcoming.count; ++at) {
        const KindRow& kind = KIND_ROWS[upcoming.kinds[at]];
        ahead[at] = {nullptr, {nullptr, 0, nullptr}, argument[0]};
        seen[at] = {0, nullptr, 0, 0};
        if (kind.gives == Gives::ROWS) {
            seen[at].hash = hash_of(argument[1]);
            fetch(ahead[at].end = ends->table.home(seen[at].hash));
        } else if (!kind.is_of_range) {
            ahead[at].guess = tables.rows_of(argument[0]);
            if (ahead[at].guess.groups) fetch(ahead[at].guess.groups->table.home(ahead[at].guess.hash));
        }
        argument += kind.argument_count;
    }
    for (size_t at = 0; at < upcoming.count; ++at) fetch_records(ahead[at]);
    for (size_t at = 0; at < upcoming.count; ++at) fetch_rows(ahead[at]);
    for (size_t at = 0; at < upcoming.count; ++at) fetch_entries(ahead[at]);
    for (size_t at = 0; at < upcoming.count; ++at) fetch_last_row(ahead[at]);
    search_all(ahead, upcoming.kinds, upcoming.count, seen);
}

}  // namespace pequod
