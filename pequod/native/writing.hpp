// What the verbs that write have in common: may they, is there room, and what else changes with a row.
//
//     written_relations, has_room -> put_into, take_out -> rows, deadlines, the revision, effects, readers
#pragma once

#include "engine.hpp"

namespace pequod {

// How a command went: not quick means that nothing has changed, as do absent and unmet of a condition that does not
// hold; failed, that an error is set.
enum class Ran { DONE, ABSENT, UNMET, NOT_QUICK, FAILED };

// What became of something that is not quick.
Ran not_quick();

// Whether Python need not be told of changes of a table's rows, or tells the joins alone.
bool is_quiet(const HotRelations* relations);

// The relations of a key's table if clients write that, the key is loaded, and the table is quiet; else null.
HotRelations* written_relations(HotEngine* engine, Piece key);
// The same for a key whose present value decides what is written: what is due is Python's to remove first.
HotRelations* decided_relations(HotEngine* engine, Piece key);

// Whether the ledger need not be looked at before a value of this size is written, the last of as many.
bool has_room(const HotEngine* engine, size_t value_bytes, size_t count = 1);

// Note what a base row has become, null: it is gone. False: an error is set.
bool note_effect(HotEngine* engine, PyObject* key, PyObject* value);

// A row is written anew, or gone: its key has no deadline any more. Whether it had one.
bool end_deadline(HotEngine* engine, Piece key);

// Put a row of a table, and count what was told of it.
// REQUIRES of these: the relations are those of the key.
Ran put_into(HotEngine* engine, HotRelations* relations, PyObject* key, PyObject* value, size_t* told);
// The same of bytes of which no object exists.
Ran put_into(HotEngine* engine, HotRelations* relations, Piece key, Piece value);

// Take a key out of its table.
Ran take_out(HotEngine* engine, HotRelations* relations, PyObject* key);
// The same of bytes of which no object exists.
Ran take_out(HotEngine* engine, HotRelations* relations, Piece key);

}  // namespace pequod
