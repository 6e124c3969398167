"""Faults in what keeps deadlines, and in the verbs that heed them."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_DEADLINES: Final = (
    Fault(
        "deadlines.cpp",
        "    if (entry.word < deadlines->least[deadlines->room + place]) bound(deadlines, place, entry.word);\n",
        "",
        "a key whose deadline is the earliest is not found",
    ),
    Fault(
        "deadlines.cpp",
        "if (static_cast<long long>(word >> 16) > deadlines->now_ms) return nullptr;",
        "if (static_cast<long long>(word >> 16) >= deadlines->now_ms) return nullptr;",
        "a key is there at the instant of its deadline",
    ),
    Fault(
        "deadlines.cpp",
        "        bound(deadlines, place, word);\n    }\n}\n\n}  // namespace\n",
        "        return place;\n    }\n}\n\n}  // namespace\n",
        "a deadline that was moved is still taken for the earliest",
    ),
    Fault(
        "deadlines.cpp",
        "    if (at_ms <= deadlines->now_ms) deadlines->is_due = true;\n",
        "",
        "a key whose deadline is set to the past is read",
    ),
    Fault(
        "deadlines.cpp",
        "    if (deadlines->bucket_count * 4 <= deadlines->room) make_room(deadlines, deadlines->room / 2);\n",
        "",
        "the room of buckets that are gone is kept",
    ),
    Fault(
        "deadlines_type.cpp",
        "    deadlines->is_due = first >= 0 && first <= now_ms;",
        "    deadlines->is_due = deadlines->is_due || (first >= 0 && first <= now_ms);",
        "where nothing is due, reads are slow for ever",
    ),
    Fault(
        "writing.cpp",
        "const bool had_deadline = old && end_deadline(engine, piece_of(key));",
        "const bool had_deadline = false;",
        "a put leaves the deadline of its key",
    ),
    Fault(
        "writing.cpp",
        "    end_deadline(engine, piece_of(key));\n    ++engine->revision;\n",
        "    ++engine->revision;\n",
        "a removed key has its deadline when it comes again",
    ),
    Fault(
        "verbs.cpp",
        "if (engine->may_be_due()) return Ran::NOT_QUICK;\n"
        "    HotRelations* relations = relations_at(engine->relations, key",
        "HotRelations* relations = relations_at(engine->relations, key",
        "a get shows a key that is due",
    ),
    Fault(
        "verbs.cpp",
        "if (engine->may_be_due()) return Ran::NOT_QUICK;\n"
        "    HotRelations* relations = relations_at(engine->relations, first",
        "HotRelations* relations = relations_at(engine->relations, first",
        "a scan of a table whose rows stand in one group shows a key that is due",
    ),
)
