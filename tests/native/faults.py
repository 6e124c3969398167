"""Faults that `planted` puts into the native core, one at a time: each is a slip that a hand could make.

A fault is a place, as text that its file has once, and what stands there instead. What an optimiser or a reader may not
notice is left out: text that makes the core only slower, or that no call can tell from what it was.
"""

from typing import Final

from tests.native.fault import Fault
from tests.native.faults_of_contents import FAULTS_OF_CONTENTS
from tests.native.faults_of_deadlines import FAULTS_OF_DEADLINES
from tests.native.faults_of_hot_calls import FAULTS_OF_HOT_CALLS
from tests.native.faults_of_http2 import FAULTS_OF_HTTP2
from tests.native.faults_of_indexes import FAULTS_OF_INDEXES
from tests.native.faults_of_messages import FAULTS_OF_MESSAGES
from tests.native.faults_of_relay import FAULTS_OF_RELAY
from tests.native.faults_of_tails import FAULTS_OF_TAILS
from tests.native.faults_of_telling import FAULTS_OF_TELLING

#: Faults in the structures of the engine, and in what goes through them.
_FAULTS_OF_STRUCTURES: Final = (
    Fault(
        "ahead.cpp",
        "seen[at].hash = hash_of(argument[1]);",
        "seen[at].hash = hash_of(argument[0]);",
        "a scan does not find the context of its end, and Python answers it",
    ),
    Fault("ahead.cpp", "argument += kind.argument_count;", "argument += 1;", "ends behind a scan are not found"),
    Fault(
        "collect.cpp",
        "if (rest.size != cutting.copied) continue;",
        "if (rest.size < cutting.copied) continue;",
        "a first check shows posts whose keys go on behind their time",
    ),
    Fault(
        "collect.cpp",
        "return is_groups(copied->groups) && copied->cut_width == kernel->copied_cut;",
        "return is_groups(copied->groups);",
        "a timeline looks for posters among groups that another join had cut",
    ),
    Fault(
        "collect.cpp",
        "        gained_bytes += sizes.tail + static_cast<long long>(piece_of(made.entries[at].key).size);\n",
        "",
        "rows that a log brings are not in the ledger",
    ),
    Fault(
        "contexts.cpp",
        "if (compare(wanted, piece_of(hot->lower)) < 0) return 0;",
        "if (compare(wanted, piece_of(hot->lower)) <= 0) return 0;",
        "a write at the first key of what is materialised is left out",
    ),
    Fault(
        "contexts.cpp",
        "if (hot->upper != Py_None && compare(wanted, piece_of(hot->upper)) >= 0) return 0;",
        "if (hot->upper != Py_None && compare(wanted, piece_of(hot->upper)) > 0) return 0;",
        "a write at the end of what is materialised is taken in",
    ),
    Fault(
        "contexts.hpp",
        "bool is_open() const { return is_whole && upper == Py_None; }",
        "bool is_open() const { return upper == Py_None; }",
        "a context of several ranges answers for what is between them",
    ),
    Fault(
        "contexts_type.cpp",
        "if (!is_hot(other) || other == self) {",
        "if (!is_hot(other)) {",
        "a context that is handed over to itself loses its frames",
    ),
    Fault(
        "cutting.hpp",
        "bound->size) : bound->size == size_t(width);",
        "bound->size) : bound->size >= size_t(width);",
        "keys of a check that are longer than its slot select",
    ),
    Fault("ends.cpp", "    ends_of(self)->table.free(end);\n", "", "an end that is taken out still has its context"),
    Fault(
        "verbs.cpp",
        "    if (hot->upper != Py_None && compare(high, piece_of(hot->upper)) > 0) return Ran::NOT_QUICK;\n",
        "",
        "a scan that goes on behind what is materialised shows that alone",
    ),
    Fault(
        "verbs.cpp",
        "return hot->upper == Py_None || compare(tail, piece_of(hot->upper)) < 0 ? hot : nullptr;",
        "return hot;",
        "a scan behind what is materialised shows nothing",
    ),
    Fault(
        "writing.cpp",
        "const bool is_other = !old || !is_equal(piece_of(old), piece_of(value));",
        "const bool is_other = !old || piece_of(old).size != piece_of(value).size;",
        "a value that is replaced by one as long is not told to joins",
    ),
    Fault("tables.cpp", "    --table->entry_count;\n", "", "removed rows are still counted"),
    Fault(
        "writing.cpp",
        "engine->revision < reinterpret_cast<HotLedger*>(engine->ledger)->weigh_at - revisions;",
        "engine->revision >= 0;",
        "quick writes go on when memory is to be weighed",
    ),
    Fault(
        "verbs.cpp",
        "if (compare(first, last) >= 0 || compare(last, piece_of(table->end)) > 0) return Ran::NOT_QUICK;",
        "if (compare(first, last) >= 0) return Ran::NOT_QUICK;",
        "a scan over several tables shows the first alone",
    ),
    Fault(
        "verbs.cpp",
        "return PyList_GET_SIZE(relations->searched) ? Applied::NOT_QUICK : Applied::NOT_LOADED;",
        "return Applied::NOT_LOADED;",
        "changes of rows that a database was searched for are lost",
    ),
    Fault(
        "integers.hpp",
        "if (at == text.size || text.size - at > INTEGER_DIGITS) return false;",
        "if (at == text.size) return false;",
        "sums of more digits than an integer has are wrong",
    ),
    Fault(
        "integers.hpp",
        "if (is_negative) *number = -*number;",
        "",
        "a negative integer is added as a positive one",
    ),
    Fault(
        "verbs.cpp",
        "if (present && !read_integer(piece_of(present), &before)) return Ran::NOT_QUICK;",
        "if (present) read_integer(piece_of(present), &before);",
        "a text counts as 0 where something is added",
    ),
    Fault(
        "batch_commands.cpp",
        "if (batch->room < static_cast<long long>(INTEGER_BYTES) + ROW_BYTES) return Ran::NOT_QUICK;",
        "",
        "an add whose sum finds no room is added twice",
    ),
    Fault(
        "batch_message.cpp",
        "if (tells_value(kind) && readable && !readable->holds(argument[0])) return false;",
        "",
        "conditions and adds tell values to callers who may not read",
    ),
    Fault(
        "verbs.cpp",
        "if (is_met(condition, *present)) return Ran::DONE;",
        "return Ran::DONE;",
        "every condition is met",
    ),
    Fault(
        "verbs.cpp",
        "if (condition.number == IF_ABSENT) return !present;",
        "if (condition.number == IF_ABSENT) return true;",
        "a key that is there counts as absent",
    ),
    Fault(
        "verbs.cpp",
        "return ran == Ran::DONE && *present ? take_out(engine, relations, key) : ran;",
        "return ran == Ran::DONE ? take_out(engine, relations, key) : ran;",
        "a removal of what has to be absent, and is, tells that its condition did not hold",
    ),
    Fault(
        "batch_commands.cpp",
        "if (ran == Ran::UNMET) batch->statuses[batch->index] = UNMET;",
        "if (ran == Ran::UNMET) batch->statuses[batch->index] = 0;",
        "a condition that did not hold is told as one that held",
    ),
    Fault(
        "verbs.hpp",
        "return at < present.size && is_equal(present.key(at), key) ? present.entries[at].value : nullptr;",
        "return at < present.size ? present.entries[at].value : nullptr;",
        "a GET behind a REMOVE of its batch gives the value of another key",
    ),
    Fault("frames.cpp", "if (!does_wait(waiting, to->number)) {", "if (false) {", "merged contexts lose their frames"),
    Fault(
        "engine_type.cpp",
        "is_down ? span.stop : span.start, found,",
        "span.start, found,",
        "a scan downwards begins at its first row",
    ),
    Fault(
        "engine_type.cpp",
        "if (ran == Ran::NOT_QUICK) Py_RETURN_FALSE;",
        "if (ran == Ran::NOT_QUICK) Py_RETURN_NONE;",
        "keys that are not computed yet are absent",
    ),
    Fault(
        "frames.cpp",
        "if (!waiting->count) grown_bytes += discard(waiting);\n    Py_DECREF(waiting);",
        "if (!waiting->count) discard(waiting);\n    Py_DECREF(waiting);",
        "frames that are gone stay in the ledger",
    ),
    Fault(
        "frames.cpp",
        "if (!place || !enter_key(frames, key.bytes)) {",
        "if (!place) {",
        "ranges that are forgotten leave what was computed from them",
    ),
    Fault(
        "frames.cpp",
        "if (!(may_skip && is_ascending) && does_wait(waiting, hot->number)) continue;",
        "if (!may_skip && does_wait(waiting, hot->number)) continue;",
        "a new context waits twice at a frame that it meets twice",
    ),
    Fault(
        "frames_type.cpp",
        "found && left; --left, ++place.at) {",
        "found && left > 1; --left, ++place.at) {",
        "the last frame of a forgotten range stays",
    ),
    Fault(
        "groups.cpp",
        "rows && PyList_Append(groups->fresh, own_prefix) == 0 ? groups->table",
        "rows ? groups->table",
        "a group that a quick write made is in no scan over groups",
    ),
    Fault(
        "kernel.cpp",
        "kernel->copied_cut = copied_cut;",
        "kernel->copied_cut = 0;",
        "a timeline of posters of a fixed width is not taken in by one call",
    ),
    Fault(
        "module.cpp",
        "if (pure && *pure && *pure != '0') {",
        "if (pure && *pure == '1' && pure[1]) {",
        "PEQUOD_PURE is not heard",
    ),
    Fault(
        "parts.cpp",
        "piece->part < part_count ? true",
        "piece->part <= part_count ? true",
        "a piece behind the last part is taken",
    ),
    Fault("parts.hpp", "        if (!size) return false;\n", "", "slots may be empty"),
    Fault(
        "places.hpp",
        "if (((at - wanted) & mask) >= ((at - gap) & mask)) {",
        "if (((at - wanted) & mask) > ((at - gap) & mask)) {",
        "keys behind one that is taken out are not found",
    ),
    Fault(
        "routes.cpp",
        "return rest.size ? nullptr : find_frame(",
        "return find_frame(",
        "keys that go on are told to joins",
    ),
    Fault("row_lists.cpp", "if (step > 0) ++start.at;", "++start.at;", "a scan downwards repeats its first row"),
    Fault(
        "rows.cpp",
        "const size_t stop = made == added ? source.size : start + half;",
        "const size_t stop = made == added ? source.size - 1 : start + half;",
        "a row is lost when a leaf is split",
    ),
    Fault(
        "rows.cpp",
        "for (size_t index = start.leaf + 1; index < stop.leaf; ++index) count",
        "for (size_t index = start.leaf + 1; index + 1 < stop.leaf; ++index) count",
        "counts over three leaves or more leave one out",
    ),
    Fault(
        "rows.cpp",
        "compare(rows->leaf(index + 1).key(0), last) <= 0) {",
        "compare(rows->leaf(index + 1).key(0), last) < 0) {",
        "a run whose last key begins the next leaf has that key twice",
    ),
    Fault(
        "rows.hpp",
        "if (compare(older[middle].key(0), key) <= 0) {",
        "if (compare(older[middle].key(0), key) < 0) {",
        "the first key of an older leaf is not found",
    ),
    Fault(
        "rows_type.cpp",
        "Py_RETURN_NONE;\n    PyObject* value = exact_bytes(arguments[1]);",
        "Py_RETURN_NONE;\n    PyObject* value = exact_bytes(arguments[0]);",
        "a replaced row has its key as its value",
    ),
    Fault(
        "rows_type.cpp",
        "left < size_t(step) ? Py_ssize_t(left) : step",
        "step",
        "the last key of a sample stands for too many",
    ),
    Fault(
        "rows_type.cpp",
        "Py_NewRef(place.at ? leaf.entries[place.at - 1].key : Py_None);",
        "Py_NewRef(place.at > 1 ? leaf.entries[place.at - 1].key : Py_None);",
        "the first key is the floor of none",
    ),
    Fault(
        "state.cpp",
        "        change_logs(own_ledger(hot), grown_bytes);\n",
        "",
        "entries of logs are not in the ledger",
    ),
    Fault(
        "state.cpp",
        "    if (!hot->is_fresh) return;\n",
        "",
        "a second change makes a context stale since then",
    ),
    Fault("state.cpp", "    Py_CLEAR(hot->log);\n", "", "a log is applied again at each read"),
    Fault(
        "tables.cpp",
        "static_cast<unsigned char>(prefix.start[size - 1]) + 1;",
        "static_cast<unsigned char>(prefix.start[size - 1]) + 2;",
        "a range that ends beyond a group shows that group alone",
    ),
    Fault(
        "tables.cpp",
        "return {key.start, key.size < size ? 0 : size};",
        "return {key.start, key.size <= size ? 0 : size};",
        "a key that is the prefix of its group is not found",
    ),
    Fault(
        "tables.cpp",
        "if (compare(last, end) <= 0) return true;",
        "return true;",
        "a read of a range that is loaded in part shows that part alone",
    ),
    Fault(
        "tables.cpp",
        "reinterpret_cast<Numbers*>(used)->number = number;",
        "",
        "what is read most is evicted first, where reads are native",
    ),
    Fault(
        "tables.cpp",
        "if (compare(end, prefix) > 0 && !begins_with(end, prefix)) return true;",
        "if (compare(end, prefix) > 0) return true;",
        "what is loaded in part counts as loaded",
    ),
    Fault(
        "tables.cpp",
        "if (!place.at || compare(key, piece_of(leaf.entries[place.at - 1].value)) >= 0) {",
        "if (!place.at || compare(key, piece_of(leaf.entries[place.at - 1].value)) > 0) {",
        "the key at the end of a loaded range counts as loaded",
    ),
    Fault(
        "tables_type.cpp",
        "return done == Put::NEW ? Py_NewRef(Py_None) : old;",
        "return Py_NewRef(Py_None);",
        "a row that Python puts again is told as a new one",
    ),
    Fault(
        "timeline.cpp",
        "if (key.size != known + size_t(width)) continue;",
        "if (key.size < known + size_t(width)) continue;",
        "the kernel shows posts whose keys go on behind their time",
    ),
    Fault(
        "timeline.cpp",
        "return order ? order < 0 : a.at < b.at;",
        "return order ? order < 0 : a.at > b.at;",
        "of equal tails the first stays",
    ),
    Fault(
        "timeline.cpp",
        "if (has_rows && hot->is_open() && compare(rows->last.key(rows->last.size - 1), piece_of(tail)) < 0) {",
        "if (has_rows && hot->is_open() && compare(rows->last.key(rows->last.size - 1), piece_of(tail)) <= 0) {",
        "a latest post that is written again stands twice",
    ),
    Fault(
        "timeline.cpp",
        "bound.size) : bound.size != size_t(width))",
        "bound.size) : bound.size < size_t(width))",
        "the kernel follows keys that are longer than the check's slot",
    ),
)

FAULTS: Final = tuple(
    sorted(
        (
            *_FAULTS_OF_STRUCTURES,
            *FAULTS_OF_MESSAGES,
            *FAULTS_OF_HTTP2,
            *FAULTS_OF_HOT_CALLS,
            *FAULTS_OF_RELAY,
            *FAULTS_OF_DEADLINES,
            *FAULTS_OF_CONTENTS,
            *FAULTS_OF_TAILS,
            *FAULTS_OF_TELLING,
            *FAULTS_OF_INDEXES,
        ),
        key=lambda fault: fault.file,
    )
)
