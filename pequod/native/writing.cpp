#include "writing.hpp"

#include "telling.hpp"

namespace pequod {

Ran not_quick() { return PyErr_Occurred() ? Ran::FAILED : Ran::NOT_QUICK; }

namespace {

// The relations of a key's table if clients write that, and the key is loaded; else null.
HotRelations* quick_relations(HotEngine* engine, Piece key) {
    HotRelations* relations = relations_at(engine->relations, key);
    if (!relations || relations->is_owned) return nullptr;
    return is_loaded(table_of(relations->table), key) ? relations : nullptr;
}

}  // namespace

bool is_quiet(const HotRelations* relations) {
    return !relations->is_watched && relations->readers && PyList_CheckExact(relations->readers);
}

HotRelations* written_relations(HotEngine* engine, Piece key) {
    if (!key.size || static_cast<long long>(key.size) > engine->key_bytes_max) return nullptr;
    if (engine->closed != Py_None) return nullptr;
    HotRelations* relations = quick_relations(engine, key);
    return relations && is_quiet(relations) ? relations : nullptr;
}

HotRelations* decided_relations(HotEngine* engine, Piece key) {
    return engine->may_be_due() ? nullptr : written_relations(engine, key);
}

bool has_room(const HotEngine* engine, size_t value_bytes, size_t count) {
    const long long revisions = static_cast<long long>(count) - 1;
    return static_cast<long long>(value_bytes) <= engine->value_bytes_quick &&
           engine->revision < reinterpret_cast<HotLedger*>(engine->ledger)->weigh_at - revisions;
}

bool note_effect(HotEngine* engine, PyObject* key, PyObject* value) {
    if (engine->effects == Py_None) return true;
    return PyDict_SetItem(engine->effects, key, value ? value : Py_None) == 0;
}

bool end_deadline(HotEngine* engine, Piece key) {
    Deadlines* deadlines = deadlines_of(engine->deadlines);
    return deadlines->count && clear(deadlines, key);
}

Ran put_into(HotEngine* engine, HotRelations* relations, PyObject* key, PyObject* value, size_t* told) {
    PyObject* old = nullptr;
    if (put(table_of(relations->table), key, value, &old) == Put::FAILED) return Ran::FAILED;
    const bool had_deadline = old && end_deadline(engine, piece_of(key));
    const bool is_other = !old || !is_equal(piece_of(old), piece_of(value));
    bool is_told = true;
    if (is_other || had_deadline) {
        ++engine->revision;
        is_told = note_effect(engine, key, value);
    }
    if (is_other && is_told) is_told = tell_readers(engine, relations->readers, {key, old, value}, told);
    Py_XDECREF(old);
    return is_told ? Ran::DONE : Ran::FAILED;
}

Ran put_into(HotEngine* engine, HotRelations* relations, Piece key, Piece value) {
    PyObject* own_key = PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
    PyObject* own_value = PyBytes_FromStringAndSize(value.start, Py_ssize_t(value.size));
    size_t told = 0;
    const Ran ran = own_key && own_value ? put_into(engine, relations, own_key, own_value, &told) : Ran::FAILED;
    Py_XDECREF(own_key);
    Py_XDECREF(own_value);
    return ran;
}

Ran take_out(HotEngine* engine, HotRelations* relations, PyObject* key) {
    PyObject* old = remove(table_of(relations->table), piece_of(key));
    if (!old) return PyErr_Occurred() ? Ran::FAILED : Ran::ABSENT;
    end_deadline(engine, piece_of(key));
    ++engine->revision;
    size_t told = 0;
    const bool is_told =
        note_effect(engine, key, nullptr) && tell_readers(engine, relations->readers, {key, old, nullptr}, &told);
    Py_DECREF(old);
    return is_told ? Ran::DONE : Ran::FAILED;
}

Ran take_out(HotEngine* engine, HotRelations* relations, Piece key) {
    PyObject* own_key = PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
    const Ran ran = own_key ? take_out(engine, relations, own_key) : Ran::FAILED;
    Py_XDECREF(own_key);
    return ran;
}

}  // namespace pequod
