"""Faults in what is read of records, and in what a changed record changes in indexes."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_INDEXES: Final = (
    Fault(
        "fields.cpp",
        "(bytes < ' ') | (bytes == '\"') | (bytes == '\\\\')",
        "(bytes == '\"') | (bytes == '\\\\')",
        "long texts with control characters, or bytes that are no UTF-8, are taken for JSON",
    ),
    Fault(
        "fields.cpp",
        "(byte(0) == 0xed && byte(1) > 0x9f)",
        "false",
        "halves of surrogate pairs are taken for UTF-8",
    ),
    Fault(
        "fields.cpp",
        "if (!take_text(name, &is_plain) || !is_plain) return false;",
        "if (!take_text(name, &is_plain)) return false;",
        "a field whose name has an escape is not found",
    ),
    Fault(
        "fields.cpp",
        "field->kind = is_plain ? Field::TEXT : Field::OTHER;",
        "field->kind = Field::TEXT;",
        "texts are shown with their escapes",
    ),
    Fault(
        "fields.cpp",
        "const bool is_other = is_decimal || (*digits == '0' && digits != start);",
        "const bool is_other = is_decimal;",
        "-0 is shown as it stands there",
    ),
    Fault(
        "fields.cpp",
        "if (depth++ == DEPTH_MAX) return false;",
        "depth++;",
        "in deep arrays the end of an object is taken for that of an array",
    ),
    Fault(
        "fields.cpp",
        "    return reader.is_at_end();\n",
        "    return true;\n",
        "what has something behind its end is taken for a record",
    ),
    Fault(
        "lens.cpp",
        "if (found[at].kind >= Field::OTHER) return nullptr;",
        "",
        "objects have numbers and texts as they were written",
    ),
    Fault(
        "lens.cpp",
        "found->kind >= Field::TEXT && found->kind <= Field::BOOLEAN;",
        "found->kind >= Field::TEXT && found->kind <= Field::NOTHING;",
        "null is given by itself",
    ),
    Fault(
        "lens.cpp",
        "            found[at].kind = Field::MISSING;\n",
        "",
        "a field is given in the place of one that it would have within it",
    ),
    Fault(
        "lens_type.cpp",
        "return lens->gives == QuickLens::SOME_FIELDS || lens->given_count == 1",
        "return true",
        "of several fields that are given by themselves one is",
    ),
    Fault(
        "indexes.cpp",
        "        old = remove(rows, piece_of(change.key));\n",
        "        old = nullptr;\n",
        "the plain row of a former value stays in the index",
    ),
    Fault(
        "indexes.cpp",
        "    weigh(index_);\n    return true;\n",
        "    return true;\n",
        "what writes add to an index is not in the ledger",
    ),
    Fault(
        "indexes.cpp",
        "        if (Py_XNewRef(before_.value)) return true;\n",
        "        if (before_.key) { Py_XINCREF(before_.value); return true; }\n",
        "what the beginning of a former value shows is taken for what it showed",
    ),
    Fault(
        "indexes.cpp",
        "!is_sound(index) || index->begun != Py_None ||",
        "!is_sound(index) ||",
        "changes are not in an index that is being made",
    ),
    Fault(
        "telling.cpp",
        "    bool is_told = found.change_indexes();\n",
        "    bool is_told = true;\n",
        "the core leaves indexes as they were",
    ),
    Fault(
        "telling.cpp",
        "for (size_t at = 0; at < look->count(); ++at) {",
        "for (size_t at = look->count() - 1; at < look->count(); ++at) {",
        "rows of the former value of a record stay",
    ),
    Fault(
        "telling.cpp",
        "at < PyList_GET_SIZE(changed.for_joins); ++at) {",
        "at < PyList_GET_SIZE(changed.for_joins) && at < 1; ++at) {",
        "of several rows that change joins over them are told of the first",
    ),
    Fault(
        "told.hpp",
        "route->tells_joins ? &for_joins : &for_python;",
        "&for_joins;",
        "watches are not told of counts that joins read too",
    ),
)
