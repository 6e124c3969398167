#include "client.hpp"

#include <iterator>

#include "fields.hpp"
#include "output.hpp"

namespace pequod::http2 {

namespace {

// What a field takes beside its name and value, as HTTP/2 counts it.
constexpr size_t FIELD_BYTES = 32;

enum Status : int { UNKNOWN = 2 };

ClientSession* session_of(void* user) { return static_cast<ClientSession*>(user); }

bool note(ClientSession* self, int32_t id, ClientEvent kind, PyObject* detail) {
    PyObject* event = Py_BuildValue("(iiO)", int(kind), int(id), detail ? detail : Py_None);
    const bool is_noted = event && PyList_Append(self->events, event) == 0;
    Py_XDECREF(event);
    return is_noted;
}

// The same with a detail of its own, which is null if an error is set.
bool note_new(ClientSession* self, int32_t id, ClientEvent kind, PyObject* detail) {
    const bool is_noted = detail && note(self, id, kind, detail);
    Py_XDECREF(detail);
    return is_noted;
}

ssize_t read_out(NgSession*, int32_t, uint8_t* to, size_t length, uint32_t* flags, Source* source, void* user) {
    ClientSession* self = session_of(user);
    Call* call = static_cast<Call*>(source->pointer);
    const size_t written = call->write(reinterpret_cast<char*>(to), length);
    self->unsent_bytes -= written;
    if (call->has_out()) return ssize_t(written);
    if (call->wants_drained) {
        call->wants_drained = false;
        if (!note(self, call->id, EMPTIED, nullptr)) return CALLBACK_FAILURE;
    }
    if (call->is_ended) {
        call->has_sent_all = true;
        *flags |= DATA_EOF;
        return ssize_t(written);
    }
    if (written) return ssize_t(written);
    call->is_deferred = true;
    return DEFERRED;
}

template <size_t N>
bool is_name(const NgPiece& piece, const char (&name)[N]) {
    return piece.size == N - 1 && std::memcmp(piece.base, name, N - 1) == 0;
}

template <size_t N>
bool begins(const NgPiece& piece, const char (&text)[N]) {
    return piece.size >= N - 1 && std::memcmp(piece.base, text, N - 1) == 0;
}

// A number of up to three digits; otherwise the other one.
int number_of(const NgPiece& piece, int other) {
    int number = 0;
    for (size_t at = 0; at < piece.size; ++at) {
        if (piece.base[at] < '0' || piece.base[at] > '9') return other;
        number = 10 * number + piece.base[at] - '0';
    }
    return piece.size && piece.size <= 3 ? number : other;
}

// False: there is no memory.
bool set(Bytes* bytes, const NgPiece& piece) {
    bytes->free();
    return bytes->add(piece.base, piece.size);
}

bool add_trailing(ClientSession* self, Call* call, const NgPiece& name, const NgPiece& value) {
    call->header_bytes += name.size + value.size + FIELD_BYTES;
    if (call->header_bytes > self->header_bytes_max) {
        call->is_overlong = true;
        call->head.free();
        return true;
    }
    const uint32_t sizes[] = {uint32_t(name.size), uint32_t(value.size)};
    return call->head.add(sizes, sizeof(sizes)) && call->head.add(name.base, name.size) &&
           call->head.add(value.base, value.size);
}

int on_header(NgSession*, const Frame* frame, NgBuffer* name_buffer, NgBuffer* value_buffer, uint8_t, void* user) {
    ClientSession* self = session_of(user);
    Call* call = call_of(self, frame->head.stream);
    if (!call || call->is_overlong) return 0;
    const NgPiece name = nghttp2.rcbuf_get_buf(name_buffer), value = nghttp2.rcbuf_get_buf(value_buffer);
    bool is_done = true;
    if (is_name(name, ":status")) {
        call->http_status = number_of(value, 0);
    } else if (is_name(name, "content-type")) {
        call->is_grpc = begins(value, "application/grpc") && !begins(value, "application/grpc-web");
    } else if (is_name(name, "grpc-status")) {
        call->status = number_of(value, UNKNOWN);
    } else if (is_name(name, "grpc-message")) {
        is_done = value.size > self->header_bytes_max ? (call->is_overlong = true) : set(&call->text, value);
    } else if (is_name(name, "grpc-encoding")) {
        is_done = set(&call->encoding, value);
    } else if (frame->head.flags & FLAG_END_STREAM && !is_name(name, "grpc-accept-encoding")) {
        is_done = add_trailing(self, call, name, value);
    }
    return is_done ? 0 : (PyErr_NoMemory(), CALLBACK_FAILURE);
}

// Whether a call with one reply has it, as it is, and nothing is said of its end but that it is well.
bool is_plain(const Call* call, const Incoming& message) {
    return call->is_unary && call->is_grpc && call->status == 0 && !call->is_overlong && !call->text.left() &&
           !call->head.left() && message.is_begun && !message.is_compressed && message.received == message.size &&
           call->unread_bytes == HEAD_BYTES + message.size;
}

// The messages that nobody has taken; null: an error is set. `is_cut` becomes whether the last one is not whole.
PyObject* take_rest(ClientSession* self, Call* call, bool* is_cut) {
    PyObject* rest = PyList_New(0);
    while (rest && call->is_grpc) {
        const Incoming message = call->next();
        const bool is_long = message.is_begun && message.size > self->message_bytes_max;
        if (!is_long && (!message.is_begun || message.received < message.size)) break;
        PyObject* taken = is_long ? PyLong_FromSize_t(message.size) : take_message(self, call, message);
        if (!taken || PyList_Append(rest, taken) < 0) Py_CLEAR(rest);
        Py_XDECREF(taken);
        if (is_long) return rest;
    }
    *is_cut = call->unread_bytes > 0;
    return rest;
}

// Tell of the end of a call, by HTTP/2's code, -1 if the server has sent everything; false: an error is set.
bool note_end(ClientSession* self, Call* call, long code) {
    if (call->is_over || call->is_let_go) return true;
    call->is_over = true;
    const Incoming message = call->next();
    if (code < 0 && is_plain(call, message)) return note_new(self, call->id, DONE, take_message(self, call, message));
    bool is_cut = false;
    PyObject* rest = take_rest(self, call, &is_cut);
    PyObject* fields = call->headers();
    if (!rest || !fields) {
        Py_XDECREF(rest);
        Py_XDECREF(fields);
        return false;
    }
    const char* text = call->text.left() ? call->text.start + call->text.at : "";
    PyObject* detail = Py_BuildValue("(iy#NNiliii)", call->status, text, Py_ssize_t(call->text.left()), fields, rest,
                                     call->http_status, code, int(call->is_grpc), int(call->is_overlong), int(is_cut));
    return note_new(self, call->id, ENDED, detail);
}

// The server has sent everything: nothing more is sent to it.
bool take_end(ClientSession* self, Call* call) {
    if (!note_end(self, call, -1)) return false;
    self->unsent_bytes -= call->drop_out();
    call->is_ended = true;
    return call->has_sent_all || nghttp2.submit_rst_stream(self->session, FLAG_NONE, call->id, NO_ERROR) == 0 ||
           failed(NO_MEMORY);
}

int on_frame(NgSession*, const Frame* frame, void* user) {
    ClientSession* self = session_of(user);
    const FrameHead& head = frame->head;
    if (head.kind == SETTINGS && !self->is_greeted && !(head.flags & FLAG_ACK)) {
        self->is_greeted = true;
        return note(self, 0, GREETED, nullptr) ? 0 : CALLBACK_FAILURE;
    }
    if (head.kind == GOAWAY) return note(self, 0, LEAVING, nullptr) ? 0 : CALLBACK_FAILURE;
    if ((head.kind != HEADERS && head.kind != DATA) || !(head.flags & FLAG_END_STREAM)) return 0;
    Call* call = call_of(self, head.stream);
    return !call || take_end(self, call) ? 0 : CALLBACK_FAILURE;
}

// Tell of a message that is waited for, if it is there, or too long; false: an error is set.
bool note_message(ClientSession* self, Call* call) {
    const Incoming message = call->next();
    if (!call->is_wanted || !message.is_begun) return true;
    const bool is_long = message.size > self->message_bytes_max;
    if (!is_long && (call->is_unary || message.received < message.size)) return true;
    call->is_wanted = false;
    PyObject* taken = is_long ? PyLong_FromSize_t(message.size) : take_message(self, call, message);
    return note_new(self, call->id, MESSAGE, taken);
}

int on_data(NgSession* session, uint8_t, int32_t id, const uint8_t* data, size_t length, void* user) {
    ClientSession* self = session_of(user);
    if (nghttp2.session_consume_connection(session, length)) return CALLBACK_FAILURE;
    Call* call = call_of(self, id);
    if (!call || call->is_over || call->is_let_go) return 0;
    const bool is_given_back = call->is_wanted || !call->is_grpc;
    if (is_given_back && nghttp2.session_consume_stream(session, id, length)) return CALLBACK_FAILURE;
    // Pages of whatever answers in the place of a server are not kept.
    if (!call->is_grpc) return 0;
    if (!call->receive(reinterpret_cast<const char*>(data), length, self->message_bytes_max)) {
        return PyErr_NoMemory(), CALLBACK_FAILURE;
    }
    self->unread_bytes += length;
    if (!is_given_back) call->held_bytes += length;
    return note_message(self, call) ? 0 : CALLBACK_FAILURE;
}

void forget(ClientSession* self, Call* call) {
    let_go(self, call);
    --self->stream_count;
    Stream *before = call->before, *behind = call->behind;
    if (before) before->behind = behind;
    if (!before) self->calls = static_cast<Call*>(behind);
    if (behind) behind->before = before;
    call->text.free();
    call->encoding.free();
    free_stream(call);
}

int on_close(NgSession* session, int32_t id, uint32_t code, void* user) {
    ClientSession* self = session_of(user);
    Call* call = call_of(self, id);
    if (!call) return 0;
    const bool is_noted = note_end(self, call, long(code));
    nghttp2.session_set_stream_user_data(session, id, nullptr);
    forget(self, call);
    return is_noted ? 0 : CALLBACK_FAILURE;
}

NgCallbacks* callbacks = nullptr;
NgOption* options = nullptr;

bool make_callbacks() {
    if (callbacks && options) return true;
    if (nghttp2.session_callbacks_new(&callbacks) || nghttp2.option_new(&options)) return PyErr_NoMemory(), false;
    nghttp2.session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2.session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2.session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2.session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2.option_set_no_auto_window_update(options, 1);
    // Texts of errors may begin or end in spaces.
    nghttp2.option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1);
    return true;
}

}  // namespace

Call* call_of(ClientSession* self, int32_t id) {
    if (!self->session) return nullptr;
    if (void* found = nghttp2.session_get_stream_user_data(self->session, id)) return static_cast<Call*>(found);
    // nghttp2 does not know a stream before its headers go out, which waits while the server has enough of them.
    for (Stream* call = self->calls; call && call->id >= id; call = call->behind) {
        if (call->id == id) return static_cast<Call*>(call);
    }
    return nullptr;
}

int32_t open(ClientSession* self, PyObject* path, PyObject* timeout, PyObject* metadata, PyObject* message,
             bool is_unary) {
    if (!self->session || !nghttp2.session_check_request_allowed(self->session)) return 0;
    Call* call = static_cast<Call*>(PyMem_Calloc(1, sizeof(Call)));
    if (!call || (message && !call->send(message))) return PyMem_Free(call), PyErr_NoMemory(), -1;
    call->is_unary = call->is_wanted = is_unary;
    call->is_ended = message != nullptr;
    call->status = -1;
    Field fields[FIRST_FIELDS_MAX + FIELDS_MAX] = {
        static_field(":method", "POST"),
        self->is_secure ? static_field(":scheme", "https") : static_field(":scheme", "http"),
        field_of({":path", 5}, piece_of(path), FIELD_NONE),
        field_of({":authority", 10}, piece_of(self->authority), FIELD_NONE),
        static_field("te", "trailers"),
        static_field("content-type", "application/grpc"),
        field_of({"user-agent", 10}, piece_of(self->agent), FIELD_NONE),
        static_field("grpc-accept-encoding", "identity, deflate, gzip"),
    };
    size_t count = 8;
    // Each is another one: in HPACK's table they would drive out what comes again.
    if (timeout) fields[count++] = field_of({"grpc-timeout", 12}, piece_of(timeout), FIELD_UNINDEXED);
    count = add_fields(fields, count, metadata);
    Provider provider = {{0}, read_out};
    provider.source.pointer = call;
    call->id = nghttp2.submit_request(self->session, nullptr, fields, count, &provider, call);
    if (call->id < 0) {
        const bool is_out_of_memory = call->id == NO_MEMORY;
        free_stream(call);
        // Otherwise no number is left for a stream.
        return is_out_of_memory ? (failed(NO_MEMORY), -1) : 0;
    }
    self->unsent_bytes += call->unsent_bytes;
    call->behind = self->calls;
    if (self->calls) self->calls->before = call;
    self->calls = call;
    ++self->stream_count;
    return call->id;
}

PyObject* take_message(ClientSession* self, Call* call, const Incoming& message) {
    PyObject* taken = call->take(message);
    if (!taken) return nullptr;
    self->unread_bytes -= HEAD_BYTES + message.size;
    if (!message.is_compressed) return taken;
    const char* encoding = call->encoding.left() ? call->encoding.start + call->encoding.at : "";
    return Py_BuildValue("(Ny#)", taken, encoding, Py_ssize_t(call->encoding.left()));
}

bool want(ClientSession* self, Call* call) {
    call->is_wanted = true;
    const size_t bytes = call->held_bytes;
    call->held_bytes = 0;
    return !bytes || nghttp2.session_consume_stream(self->session, call->id, bytes) == 0;
}

bool push(ClientSession* self, Call* call) {
    if (!call->is_deferred) return true;
    call->is_deferred = false;
    return nghttp2.session_resume_data(self->session, call->id) == 0 || failed(NO_MEMORY);
}

void let_go(ClientSession* self, Call* call) {
    call->is_let_go = true;
    self->unread_bytes -= call->drop_in();
    self->unsent_bytes -= call->drop_out();
}

bool start(ClientSession* self, int32_t window) {
    if (!make_callbacks()) return false;
    if (nghttp2.session_client_new3(&self->session, callbacks, self, options, &memory)) return failed(NO_MEMORY);
    const Setting settings[] = {{ENABLE_PUSH, 0},
                                {INITIAL_WINDOW_SIZE, uint32_t(window)},
                                {MAX_HEADER_LIST_SIZE, uint32_t(self->header_bytes_max)}};
    if (nghttp2.submit_settings(self->session, FLAG_NONE, settings, std::size(settings))) return failed(NO_MEMORY);
    const int code = nghttp2.session_set_local_window_size(self->session, FLAG_NONE, 0, CLIENT_WINDOW);
    return !code || failed(code);
}

void stop(ClientSession* self) {
    // nghttp2 tells nobody of the streams that are open then.
    while (self->calls) forget(self, self->calls);
    if (self->session) nghttp2.session_del(self->session);
    self->session = nullptr;
}

}  // namespace pequod::http2
