// One stream of a connection: the messages that came and are not taken, and those that are not sent.
//
//     frames of data -> in -> take                head and size of each message: 5 bytes, then the message
//                      long -> the message itself, which grows as it comes
//     send -> out, one behind the other -> frames of data
#pragma once

#include "../rows.hpp"
#include "nghttp2.hpp"

namespace pequod::http2 {

// Before each message stand a flag and its size.
constexpr size_t HEAD_BYTES = 5;
// A message of more bytes is not put together among others, but where it is handed out.
constexpr size_t LONG_BYTES = 16 << 10;

// Bytes that grow at the end and are taken from the beginning.
struct Bytes {
    char* start;
    size_t at, size, room;

    size_t left() const { return size - at; }
    const unsigned char* front() const { return reinterpret_cast<const unsigned char*>(start) + at; }
    // False: there is no memory.
    bool add(const void* data, size_t length);
    // A place for as many more bytes behind those that are there; null: there is no memory.
    char* reserve(size_t length);
    // Go on behind the next bytes; an empty one keeps little memory.
    void skip(size_t length);
    void free();
};

// The fields of headers as `Stream::head` has them, one after the other.
struct Fields {
    const char* at;
    const char* end;
    Piece name{"", 0}, value{"", 0};

    explicit Fields(const Bytes& head) : at(head.start + head.at), end(head.start + head.size) {}

    bool next() {
        if (at == end) return false;
        uint32_t sizes[2];
        std::memcpy(sizes, at, sizeof(sizes));
        name = {at + sizeof(sizes), sizes[0]};
        value = {name.start + name.size, sizes[1]};
        at = value.start + value.size;
        return true;
    }
};

// A message on its way to the client, with its head.
struct Outgoing {
    Outgoing* next;
    PyObject* message;
    unsigned char head[HEAD_BYTES];
    // How much of both is sent.
    size_t at;

    size_t size() const { return HEAD_BYTES + size_t(PyBytes_GET_SIZE(message)); }
};

// The message that comes next.
struct Incoming {
    // Whether its head is there.
    bool is_begun;
    bool is_compressed;
    size_t size;
    // How much of it is there.
    size_t received;
};

// INVARIANTS:
// 1. `unread_bytes` are those of `in` that are left, and those of `lengthy` with its head.
// 2. `unsent_bytes` are those of `reply`, and of `first_out` to `last_out`, that are not sent.
// 3. The room of `lengthy` is no more than its size, and all of it once the message is there as a whole.
// 4. `held_bytes` have no window given back for them; they are 0 while the next message is wanted.
struct Stream {
    int32_t id;
    // Of events that were not handed out yet, which one tells of this stream.
    Py_ssize_t event_at;
    size_t event_round;
    Stream *before, *behind;

    // What came. The headers are sizes and bytes of one name and value behind the other; they are whole, and Python was
    // told of them.
    Bytes head;
    size_t header_bytes;
    bool has_headers, is_told;
    // How a hot call is named by `HotMethod`, 0 for others, and its header `authorization`, a part of `head`.
    unsigned char hot_method;
    // It is a call of Execute, whose messages may be hot; once Python has taken the first one, they are queued.
    bool takes_batches, is_of_batches;
    // The next of them is Python's to take.
    bool is_left;
    // When it was passed on to another worker that has not answered it; 0: it was not.
    double passed_s;
    Piece authorization;
    Bytes in;
    // A long message as far as there is room for it, its size, and how much of it is there.
    PyObject* lengthy;
    size_t lengthy_size, lengthy_at;
    bool is_lengthy_compressed;
    size_t unread_bytes, held_bytes;
    int32_t window;
    // A handler waits for the next message; the client has sent everything; its headers are too long; nobody will take
    // what comes.
    bool is_wanted, is_half_closed, is_overlong, is_ignored;

    // What goes: the reply of a hot call, with its head; or messages.
    Bytes reply;
    Outgoing *first_out, *last_out;
    size_t unsent_bytes;
    // Lists of pairs of bytes; null: none of its own.
    PyObject* first_fields;
    PyObject* trailers;
    // The beginning of the response is sent; all of it was given; nghttp2 waits for more; Python waits for an empty
    // one.
    bool is_response_begun, is_ended, is_deferred, wants_drained;

    // The headers as a list of pairs of bytes; null: an error is set.
    PyObject* headers() const;
    // Whether something is not sent.
    bool has_out() const { return first_out || reply.left(); }
    Incoming next() const;
    // Make room for more of a long message; false: there is no memory.
    bool lengthen();
    // Take in what came; false: there is no memory.
    bool receive(const char* data, size_t length, size_t message_bytes_max);
    // Return the next message, which is there as a whole; null: an error is set.
    PyObject* take(const Incoming& message);
    // Drop what came, and return its bytes.
    size_t drop_in();
    // False: there is no memory.
    bool send(PyObject* message);
    // Write at most as many bytes of what goes, and return the number.
    size_t write(char* to, size_t length);
    // Drop what goes, and return its bytes.
    size_t drop_out();
};

Stream* new_stream(int32_t id);
void free_stream(Stream* stream);

}  // namespace pequod::http2
