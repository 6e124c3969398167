// Those who are told of a change: found first, so that all are told, or none.
#pragma once

#include "indexes.hpp"
#include "routes.hpp"

namespace pequod {

// Those who wait for a change, by the route of a site: that of the written key, or of a plain row that a record shows.
struct Told {
    PyObject* site;
    const Route* route;
    Waiting* waiting;
    Match match;
    const Change* change;
};

// Those who wait for a change, of all routes; not quick: Python tells them.
class ToldAll {
  public:
    bool is_quick = true;

    ToldAll() = default;
    ToldAll(const ToldAll&) = delete;
    ToldAll& operator=(const ToldAll&) = delete;
    ~ToldAll() {
        if (more_) PyMem_Free(more_);
        while (look_count_) looks_[--look_count_].end();
    }

    size_t count() const { return count_; }
    const Told& at(size_t number) const { return number < FEW ? few_[number] : more_[number - FEW]; }

    // Where the next ones are written, as to copy them is a tenth of a put; they count once they are added. Null: an
    // error is set.
    Told* next() {
        if (count_ < FEW) return &few_[count_];
        if (count_ - FEW == more_max_ && !grow()) return nullptr;
        return &more_[count_ - FEW];
    }
    void add_next() { ++count_; }

    // Look at what a change changes in an index; null: Python has to look, or an error is set.
    const Look* add_look(HotIndex* index, const Change& change) {
        if (look_count_ == LOOKS_MAX) return nullptr;
        Look& look = looks_[look_count_++];
        return look.begin(index, change) ? &look : nullptr;
    }

    // False: an error is set.
    bool change_indexes() const {
        for (size_t at = 0; at < look_count_; ++at) {
            if (!looks_[at].take_in()) return false;
        }
        return true;
    }

  private:
    // Mostly a table has few readers: these take no memory of their own.
    static constexpr size_t FEW = 8;

    bool grow() {
        const size_t wanted = more_max_ ? 2 * more_max_ : FEW;
        void* grown = PyMem_Realloc(more_, wanted * sizeof(Told));
        if (!grown) return PyErr_NoMemory(), false;
        more_ = static_cast<Told*>(grown);
        more_max_ = wanted;
        return true;
    }

    size_t count_ = 0;
    Told few_[FEW];
    Told* more_ = nullptr;
    size_t more_max_ = 0;
    // Of a table with more indexes Python looks at the records.
    static constexpr size_t LOOKS_MAX = 8;
    Look looks_[LOOKS_MAX];
    size_t look_count_ = 0;
};

// Rows that have changed, of which others are told than watches: lists, null as long as they are empty.
class Changed {
  public:
    // Of joins that have watches too, or rivals.
    PyObject* for_python = nullptr;
    PyObject* for_joins = nullptr;

    Changed() = default;
    Changed(const Changed&) = delete;
    Changed& operator=(const Changed&) = delete;
    ~Changed() {
        Py_XDECREF(for_python);
        Py_XDECREF(for_joins);
    }

    // The list for the rows of a route; null: an error is set.
    PyObject* list_of(const Route* route) {
        PyObject** list = route->tells_joins ? &for_joins : &for_python;
        if (!*list) *list = PyList_New(0);
        return *list;
    }
};

}  // namespace pequod
