#include "relay.hpp"

#include "../arguments.hpp"
#include "owners.hpp"

namespace pequod::http2 {

namespace {

// Calls whose clients wait for less are Python's, which ends them in time.
constexpr double TIMEOUT_MIN_S = 0.1;
// The bytes of the calls that are on their way.
constexpr size_t RELAYED_BYTES_MAX = 1 << 20;
// After as many calls that came back, only one of as many goes, until one is answered.
constexpr unsigned RETURNED_MAX = 32;

// The seconds that a header `grpc-timeout` says; below zero: it says nothing that is known here.
double seconds_of(Piece text) {
    if (text.size < 2 || text.size > 9) return -1;
    double number = 0;
    for (size_t at = 0; at + 1 < text.size; ++at) {
        if (text.start[at] < '0' || text.start[at] > '9') return -1;
        number = 10 * number + (text.start[at] - '0');
    }
    switch (text.start[text.size - 1]) {
        case 'H':
            return number * 3600;
        case 'M':
            return number * 60;
        case 'S':
            return number;
        case 'm':
            return number * 1e-3;
        case 'u':
            return number * 1e-6;
        case 'n':
            return number * 1e-9;
        default:
            return -1;
    }
}

// When the client of a stream waits no longer, 0: it always does; below zero: Python has to see to it.
double deadline_of(const Stream* stream, double now) {
    constexpr char NAME[] = "grpc-timeout";
    for (Fields fields(stream->head); fields.next();) {
        if (!is_equal(fields.name, {NAME, sizeof(NAME) - 1})) continue;
        const double seconds = seconds_of(fields.value);
        return seconds < TIMEOUT_MIN_S ? -1 : now + seconds;
    }
    return 0;
}

// Where a read goes: the place of the worker among the servers, -1: Python has to say. And whether the one that is
// asked may show some of the keys itself, so that the other one has to show as much.
struct Way {
    Py_ssize_t place;
    bool is_shared;
};

constexpr Way NOWHERE = {-1, false};

// That of a read of keys; those of several workers each are nobody's.
Way way_of_keys(const Relay& relay, const KeyRanges& tables, Piece message) {
    Piece keys[KEYS_MAX];
    const size_t count = keys_of(message, keys);
    const Owners* owners = reinterpret_cast<Owners*>(relay.owners);
    Way way = NOWHERE;
    for (size_t at = 0; at < count; ++at) {
        if (!tables.holds(keys[at])) return {relay.home, false};
        const Py_ssize_t reader = owners->reader_of(keys[at], relay.own);
        if (at && reader != way.place) return NOWHERE;
        way = {reader, true};
    }
    return way;
}

Way way_of(const Relay& relay, HotMethod method, Piece message) {
    KeyRanges tables;
    if (!read_ranges(relay.tables, &tables)) return PyErr_Clear(), NOWHERE;
    if (method == HOT_MULTI_GET) return way_of_keys(relay, tables, message);
    Piece first, last;
    if (!range_of(method, message, &first, &last)) return NOWHERE;
    const bool is_shared = last.size ? tables.covers(first, last) : tables.holds(first);
    if (!is_shared) return {relay.home, false};
    return {reinterpret_cast<Owners*>(relay.owners)->reader_of(first, relay.own), true};
}

// The link to the worker at a place; null: this is that worker, or calls do not go that way now.
Link* link_at(const Relay& relay, Py_ssize_t place) {
    if (place < 0 || place == relay.own || place >= PyList_GET_SIZE(relay.links)) return nullptr;
    PyObject* object = PyList_GET_ITEM(relay.links, place);
    if (!Py_IS_TYPE(object, link_type)) return nullptr;
    Link* link = reinterpret_cast<Link*>(object);
    if (!link->write || link->is_silent) return nullptr;
    if (link->returned < RETURNED_MAX) return link;
    if (++link->spared < RETURNED_MAX) return nullptr;
    link->spared = 0;
    return link;
}

bool is_passed_on(HotMethod method) {
    return method == HOT_GET || method == HOT_COUNT || method == HOT_SCAN || method == HOT_MULTI_GET ||
           method == HOT_TTL;
}

}  // namespace

bool pass_on(Session* self, const HotTurn& turn, const HotRights& rights, Stream* stream, bool* is_passed) {
    *is_passed = false;
    Relay& relay = turn.calls->relay;
    const HotMethod method = HotMethod(stream->hot_method);
    if (!relay.owners || !is_passed_on(method) || turn.token.size > TOKEN_MAX || rights.lease) return true;
    // Whose rights it has is not known.
    if (relay.has_guard && !rights.relay_as) return true;
    const Piece message = {reinterpret_cast<const char*>(stream->in.front()) + HEAD_BYTES, stream->next().size};
    if (relay.count >= relay.count_max || relay.bytes + message.size > RELAYED_BYTES_MAX) return true;
    const Way way = way_of(relay, method, message);
    Link* link = link_at(relay, way.place);
    if (!link) return true;
    const double deadline_s = deadline_of(stream, monotonic());
    if (deadline_s < 0) return true;
    // Of the home's own keys, nothing is shown but by the home.
    const size_t head_size = way.is_shared ? turn.token.size : 0;
    char token[TOKEN_MAX + VARINT_MAX];
    std::memcpy(token, turn.token.start, head_size);
    char* end = token + head_size;
    if (turn.is_token_own && head_size) end = write_varint(end, uint64_t(turn.engine->revision));
    const Piece role = rights.relay_as ? piece_of(rights.relay_as) : Piece{"", 0};
    if (!send_call(link, self, stream, message, {token, size_t(end - token)}, role, deadline_s)) {
        return PyErr_NoMemory(), false;
    }
    *is_passed = true;
    return true;
}

bool flush_links(const HotCalls* calls) {
    PyObject* links = calls->relay.links;
    bool is_done = true;
    for (Py_ssize_t at = 0; links && is_done && at < PyList_GET_SIZE(links); ++at) {
        PyObject* object = PyList_GET_ITEM(links, at);
        Link* link = Py_IS_TYPE(object, link_type) ? reinterpret_cast<Link*>(object) : nullptr;
        if (!link || !link->out.left() || link->is_soon || !link->write) continue;
        // The first calls go at once; behind them, those of other connections are waited for.
        const bool is_first = link->size - link->at == link->fresh;
        Py_INCREF(object);
        if (is_first) {
            is_done = flush(link);
        } else {
            link->is_soon = true;
            PyObject* done = PyObject_CallNoArgs(link->soon);
            is_done = done;
            Py_XDECREF(done);
        }
        Py_DECREF(object);
    }
    return is_done;
}

// relay_by(owners, tables, links, own, home, count_max, has_guard): pass calls on to other workers; without arguments,
// to none.
PyObject* hot_relay_by(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Relay& relay = reinterpret_cast<HotCalls*>(object)->relay;
    if (!count) {
        Py_CLEAR(relay.owners);
        Py_CLEAR(relay.tables);
        Py_CLEAR(relay.links);
        Py_RETURN_NONE;
    }
    KeyRanges ranges;
    if (!check_count("relay_by", count, 7)) return nullptr;
    if (!check_all(Py_IS_TYPE(arguments[0], owners_type) && read_ranges(arguments[1], &ranges) &&
                       PyList_CheckExact(arguments[2]),
                   "relay_by takes owners, ranges of keys, and a list of links")) {
        return nullptr;
    }
    const Py_ssize_t own = PyLong_AsSsize_t(arguments[3]), home = PyLong_AsSsize_t(arguments[4]);
    const size_t most = PyLong_AsSize_t(arguments[5]);
    if (PyErr_Occurred()) return nullptr;
    Py_XSETREF(relay.owners, Py_NewRef(arguments[0]));
    Py_XSETREF(relay.tables, Py_NewRef(arguments[1]));
    Py_XSETREF(relay.links, Py_NewRef(arguments[2]));
    relay.own = own;
    relay.home = home;
    relay.count_max = most;
    relay.has_guard = arguments[6] == Py_True;
    Py_RETURN_NONE;
}

}  // namespace pequod::http2
