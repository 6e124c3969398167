#include "engine.hpp"

#include "records.hpp"

namespace pequod {

PyTypeObject* engine_type = nullptr;

bool HotEngine::is_sound() const {
    return ends && Py_TYPE(ends) == ends_type && reads && PyObject_TypeCheck(reads, numbers_type) && ledger &&
           PyObject_TypeCheck(ledger, ledger_type) && relations && PyDict_CheckExact(relations) && base_changed;
}

namespace {

// What became of something that is not quick.
Ran not_quick() { return PyErr_Occurred() ? Ran::FAILED : Ran::NOT_QUICK; }

// The relations of a key's table if clients write that, and nobody watches it; else null.
HotRelations* quick_relations(HotEngine* engine, Piece key) {
    HotRelations* relations = relations_at(engine->relations, key);
    return relations && !relations->is_owned ? relations : nullptr;
}

// The same for a key that is written.
HotRelations* written_relations(HotEngine* engine, Piece key) {
    if (!key.size || static_cast<long long>(key.size) > engine->key_bytes_max) return nullptr;
    HotRelations* relations = quick_relations(engine, key);
    return relations && !relations->is_watched && relations->readers && PyList_CheckExact(relations->readers)
               ? relations
               : nullptr;
}

// Bring up to date what depends on a key; the values are null if the key was or is absent. An error is set on failure.
bool tell_readers(HotEngine* engine, PyObject* readers, PyObject* key, PyObject* old, PyObject* value) {
    if (!PyList_GET_SIZE(readers)) return true;
    PyObject* told = PyObject_CallFunctionObjArgs(engine->base_changed, readers, key, old ? old : Py_None,
                                                  value ? value : Py_None, nullptr);
    Py_XDECREF(told);
    return told;
}

Ran put_into(HotEngine* engine, HotRelations* relations, SortedRows* rows, PyObject* key, PyObject* value) {
    HotTable* table = table_of(relations->table);
    PyObject* old = nullptr;
    const Put done = put(rows, key, value, &old);
    if (done == Put::FAILED) return Ran::FAILED;
    table->value_bytes += static_cast<long long>(piece_of(value).size);
    if (old) {
        table->value_bytes -= static_cast<long long>(piece_of(old).size);
    } else {
        ++table->entry_count;
        table->key_bytes += static_cast<long long>(piece_of(key).size);
    }
    bool is_told = true;
    if (!old || !is_equal(piece_of(old), piece_of(value))) {
        ++engine->revision;
        is_told = tell_readers(engine, relations->readers, key, old, value);
    }
    Py_XDECREF(old);
    return is_told ? Ran::DONE : Ran::FAILED;
}

}  // namespace

Ran put(HotEngine* engine, Piece key, Piece value) {
    HotRelations* relations = written_relations(engine, key);
    if (!relations || static_cast<long long>(value.size) > engine->value_bytes_quick ||
        engine->revision >= reinterpret_cast<HotLedger*>(engine->ledger)->weigh_at) {
        return not_quick();
    }
    const Found found = rows_of(table_of(relations->table), key);
    // A new group is Python's to make.
    if (!found.is_quick || !found.rows) return not_quick();
    PyObject* own_key = PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
    PyObject* own_value = PyBytes_FromStringAndSize(value.start, Py_ssize_t(value.size));
    const Ran ran = own_key && own_value ? put_into(engine, relations, found.rows, own_key, own_value) : Ran::FAILED;
    Py_XDECREF(own_key);
    Py_XDECREF(own_value);
    return ran;
}

Ran remove(HotEngine* engine, Piece key) {
    HotRelations* relations = written_relations(engine, key);
    if (!relations) return not_quick();
    HotTable* table = table_of(relations->table);
    const Found found = rows_of(table, key);
    if (!found.is_quick) return not_quick();
    if (!found.rows) return Ran::ABSENT;
    // A group that becomes empty is Python's to take out.
    const bool is_group = reinterpret_cast<PyObject*>(found.rows) != table->loose;
    if (is_group && !found.rows->older_size && found.rows->last.size < 2) return Ran::NOT_QUICK;
    PyObject* own_key = PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
    if (!own_key) return Ran::FAILED;
    PyObject* old = remove(found.rows, key);
    Ran ran = Ran::ABSENT;
    if (old) {
        --table->entry_count;
        table->key_bytes -= static_cast<long long>(key.size);
        table->value_bytes -= static_cast<long long>(piece_of(old).size);
        ++engine->revision;
        ran = tell_readers(engine, relations->readers, own_key, old, nullptr) ? Ran::DONE : Ran::FAILED;
        Py_DECREF(old);
    }
    Py_DECREF(own_key);
    return ran;
}

Ran get(HotEngine* engine, Piece key, PyObject** value) {
    HotRelations* relations = quick_relations(engine, key);
    if (!relations) return not_quick();
    const Found found = rows_of(table_of(relations->table), key);
    if (!found.is_quick) return not_quick();
    if (!found.rows) return Ran::ABSENT;
    const Place place = lower_bound(found.rows, key);
    const Leaf& leaf = found.rows->leaf(place.leaf);
    if (place.at == leaf.size || !is_equal(leaf.key(place.at), key)) return Ran::ABSENT;
    *value = leaf.entries[place.at].value;
    return Ran::DONE;
}

Ran rows_between(HotEngine* engine, Piece first, Piece last, SortedRows** rows) {
    HotRelations* relations = quick_relations(engine, first);
    if (!relations) return not_quick();
    const HotTable* table = table_of(relations->table);
    if (compare(first, last) >= 0 || compare(last, piece_of(table->end)) > 0) return Ran::NOT_QUICK;
    const Found found = rows_within(table, first, last);
    if (!found.is_quick) return not_quick();
    *rows = found.rows;
    return Ran::DONE;
}

namespace {

PyMemberDef members[] = {
    PEQUOD_MEMBER(HotEngine, revision, T_LONGLONG),
    {"_key_bytes_max", T_LONGLONG, offsetof(HotEngine, key_bytes_max), 0, nullptr},
    {"_value_bytes_quick", T_LONGLONG, offsetof(HotEngine, value_bytes_quick), 0, nullptr},
    {"_ends", T_OBJECT_EX, offsetof(HotEngine, ends), 0, nullptr},
    {"_reads", T_OBJECT_EX, offsetof(HotEngine, reads), 0, nullptr},
    {"ledger", T_OBJECT_EX, offsetof(HotEngine, ledger), 0, nullptr},
    {"_relations", T_OBJECT_EX, offsetof(HotEngine, relations), 0, nullptr},
    {"_base_changed", T_OBJECT_EX, offsetof(HotEngine, base_changed), 0, nullptr},
    PEQUOD_LAST_MEMBER,
};

}  // namespace

int add_engine_type(PyObject* module) {
    engine_type = make_record_type<HotEngine>("pequod.engine._hot.HotEngine", members);
    if (!engine_type) return -1;
    return PyModule_AddObjectRef(module, "HotEngine", reinterpret_cast<PyObject*>(engine_type));
}

}  // namespace pequod
