#include "session.hpp"

#include <iterator>

#include "fields.hpp"
#include "output.hpp"

namespace pequod::http2 {

namespace {

// More frames than this for one request's headers are no use to an honest client.
constexpr unsigned CONTINUATIONS_MAX = 8;
// Answers to pings and settings that a client lets pile up.
constexpr size_t ANSWERS_MAX = 1000;
// Streams that a client resets, at once and in a second. nghttp2 would end the connection of a client that drops a
// thousand calls; here a call that is reset before it begins costs no more than its frames.
constexpr uint64_t RESETS_MAX = 1000000;
// What a field takes beside its name and value, as HTTP/2 counts it.
constexpr size_t FIELD_BYTES = 32;
const Field FIRST_FIELDS[] = {static_field(":status", "200"), static_field("content-type", "application/grpc"),
                              static_field("grpc-accept-encoding", "identity, deflate, gzip")};
const Field PLAIN_TRAILERS[] = {static_field("grpc-status", "0")};

Session* session_of(void* user) { return static_cast<Session*>(user); }

int submit_trailers(Session* self, Stream* stream) {
    if (!stream->trailers) return nghttp2.submit_trailer(self->session, stream->id, PLAIN_TRAILERS, 1);
    Field fields[FIRST_FIELDS_MAX + FIELDS_MAX];
    return nghttp2.submit_trailer(self->session, stream->id, fields, add_fields(fields, 0, stream->trailers));
}

ssize_t read_out(NgSession*, int32_t, uint8_t* to, size_t length, uint32_t* flags, Source* source, void* user) {
    Session* self = session_of(user);
    Stream* stream = static_cast<Stream*>(source->pointer);
    const size_t written = stream->write(reinterpret_cast<char*>(to), length);
    self->unsent_bytes -= written;
    if (stream->has_out()) return ssize_t(written);
    if (stream->wants_drained) {
        stream->wants_drained = false;
        if (!note(self, stream, DRAINED, nullptr)) return CALLBACK_FAILURE;
    }
    if (stream->is_ended) {
        *flags |= DATA_EOF | DATA_NO_END_STREAM;
        return submit_trailers(self, stream) ? ssize_t(CALLBACK_FAILURE) : ssize_t(written);
    }
    if (written) return ssize_t(written);
    stream->is_deferred = true;
    return DEFERRED;
}

int on_begin_frame(NgSession* session, const FrameHead* head, void* user) {
    Session* self = session_of(user);
    self->continuation_count = head->kind == CONTINUATION ? self->continuation_count + 1 : 0;
    if (self->continuation_count > CONTINUATIONS_MAX) nghttp2.session_terminate_session(session, ENHANCE_YOUR_CALM);
    return 0;
}

int on_begin_headers(NgSession* session, const Frame* frame, void* user) {
    Session* self = session_of(user);
    // Trailers of a client; nothing is asked of them.
    if (frame->head.kind != HEADERS || stream_of(self, frame->head.stream)) return 0;
    Stream* stream = new_stream(frame->head.stream);
    if (!stream) return PyErr_NoMemory(), CALLBACK_FAILURE;
    stream->window = self->window;
    stream->behind = self->streams;
    if (self->streams) self->streams->before = stream;
    self->streams = self->opening = stream;
    ++self->stream_count;
    nghttp2.session_set_stream_user_data(session, stream->id, stream);
    return 0;
}

int on_header(NgSession*, const Frame* frame, NgBuffer* name, NgBuffer* value, uint8_t, void* user) {
    Session* self = session_of(user);
    // Without it, these are trailers: the headers were handed out.
    Stream* stream = self->opening;
    if (!stream || stream->id != frame->head.stream || stream->is_overlong) return 0;
    const NgPiece n = nghttp2.rcbuf_get_buf(name), v = nghttp2.rcbuf_get_buf(value);
    const size_t bytes = n.size + v.size + FIELD_BYTES;
    if (stream->header_bytes + bytes > self->header_bytes_max) {
        stream->is_overlong = true;
        stream->head.free();
        return 0;
    }
    stream->header_bytes += bytes;
    self->header_bytes += bytes;
    const uint32_t sizes[] = {uint32_t(n.size), uint32_t(v.size)};
    const bool is_done =
        stream->head.add(sizes, sizeof(sizes)) && stream->head.add(n.base, n.size) && stream->head.add(v.base, v.size);
    return is_done ? 0 : (PyErr_NoMemory(), CALLBACK_FAILURE);
}

// The headers of a stream are whole: it is a hot call, perhaps, or Python's.
bool take_headers(Session* self, Stream* stream) {
    stream->has_headers = true;
    self->opening = nullptr;
    if (self->hot && !stream->is_overlong && find_hot_method(stream)) return add_hot(self, stream);
    return note_opened(self, stream);
}

}  // namespace

bool note_opened(Session* self, Stream* stream) {
    PyObject* headers = stream->is_overlong ? Py_NewRef(Py_None) : stream->headers();
    if (!headers) return false;
    // What its caller may do is asked for with each of its batches.
    if (!stream->takes_batches) stream->head.free();
    stream->is_told = true;
    stream->event_at = PyList_GET_SIZE(self->events);
    stream->event_round = self->event_round;
    const bool is_noted = note(self, stream, OPENED, headers);
    Py_DECREF(headers);
    return is_noted;
}

namespace {

// The client has heard of our windows: nghttp2 has taken the difference from those of all streams.
bool take_own_window(Session* self) {
    const int32_t difference = self->own_window - self->window;
    self->window = self->own_window;
    bool is_done = true;
    for (Stream* stream = self->streams; stream && is_done; stream = stream->behind) {
        stream->window += difference;
        is_done = widen(self, stream);
    }
    return is_done;
}

int on_frame(NgSession*, const Frame* frame, void* user) {
    Session* self = session_of(user);
    if (frame->head.kind == SETTINGS && frame->head.flags & FLAG_ACK)
        return take_own_window(self) ? 0 : CALLBACK_FAILURE;
    if (frame->head.kind != HEADERS && frame->head.kind != DATA) return 0;
    Stream* stream = stream_of(self, frame->head.stream);
    if (!stream) return 0;
    if (frame->head.flags & FLAG_END_STREAM) stream->is_half_closed = true;
    if (!stream->has_headers) return take_headers(self, stream) ? 0 : CALLBACK_FAILURE;
    return stream->is_half_closed && !note_readable(self, stream) ? CALLBACK_FAILURE : 0;
}

int on_data(NgSession* session, uint8_t, int32_t id, const uint8_t* data, size_t length, void* user) {
    Session* self = session_of(user);
    Stream* stream = stream_of(self, id);
    const bool is_taken = stream && !stream->is_ended && !stream->is_ignored;
    if (!is_taken) return nghttp2.session_consume_connection(session, length) ? CALLBACK_FAILURE : 0;
    if (!stream->receive(reinterpret_cast<const char*>(data), length, self->message_bytes_max)) {
        return PyErr_NoMemory(), CALLBACK_FAILURE;
    }
    self->unread_bytes += length;
    if (stream->is_wanted) {
        if (nghttp2.session_consume_connection(session, length)) return CALLBACK_FAILURE;
        if (nghttp2.session_consume_stream(session, id, length)) return CALLBACK_FAILURE;
        return note_readable(self, stream) && widen(self, stream) ? 0 : CALLBACK_FAILURE;
    }
    stream->held_bytes += length;
    self->held_bytes += length;
    self->withheld_bytes += length;
    return give_back(self) ? 0 : CALLBACK_FAILURE;
}

// Take a stream out of all sums, and let go of it.
void forget(Session* self, Stream* stream) {
    self->held_bytes -= stream->held_bytes;
    self->unread_bytes -= stream->unread_bytes;
    self->unsent_bytes -= stream->unsent_bytes;
    self->header_bytes -= stream->header_bytes;
    self->wanted_count -= stream->is_wanted;
    --self->stream_count;
    if (self->opening == stream) self->opening = nullptr;
    (stream->before ? stream->before->behind : self->streams) = stream->behind;
    if (stream->behind) stream->behind->before = stream->before;
    free_stream(stream);
}

int on_close(NgSession* session, int32_t id, uint32_t code, void* user) {
    Session* self = session_of(user);
    Stream* stream = stream_of(self, id);
    if (!stream) return 0;
    bool is_noted = true;
    if (!stream->is_told) {
        // Its headers were never whole, or it was a hot call.
    } else if (stream->event_round == self->event_round) {
        // A call that is over before anybody knew of it has never been.
        is_noted = PyList_SetItem(self->events, stream->event_at, Py_NewRef(Py_None)) == 0;
    } else {
        PyObject* detail = PyLong_FromUnsignedLong(code);
        is_noted = detail && note(self, stream, CLOSED, detail);
        Py_XDECREF(detail);
    }
    nghttp2.session_set_stream_user_data(session, id, nullptr);
    forget(self, stream);
    return is_noted && give_back(self) ? 0 : CALLBACK_FAILURE;
}

// A client that gets the status before it has sent everything need not go on.
int on_sent(NgSession* session, const Frame* frame, void* user) {
    if (frame->head.kind != HEADERS || !(frame->head.flags & FLAG_END_STREAM)) return 0;
    Stream* stream = stream_of(session_of(user), frame->head.stream);
    if (!stream || stream->is_half_closed) return 0;
    return nghttp2.submit_rst_stream(session, FLAG_NONE, stream->id, NO_ERROR) ? CALLBACK_FAILURE : 0;
}

NgCallbacks* callbacks = nullptr;
NgOption* options = nullptr;

bool make_callbacks() {
    if (callbacks && options) return true;
    if (nghttp2.session_callbacks_new(&callbacks) || nghttp2.option_new(&options)) return PyErr_NoMemory(), false;
    nghttp2.session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2.session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2.session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2.session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2.session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2.session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2.session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2.option_set_no_auto_window_update(options, 1);
    nghttp2.option_set_no_closed_streams(options, 1);
    nghttp2.option_set_max_outbound_ack(options, ANSWERS_MAX);
    if (nghttp2.option_set_stream_reset_rate_limit) {
        nghttp2.option_set_stream_reset_rate_limit(options, RESETS_MAX, RESETS_MAX);
    }
    // Tokens may end in spaces: the guard says what is wrong with them.
    nghttp2.option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1);
    return true;
}

}  // namespace

Stream* stream_of(Session* self, int32_t id) {
    if (!self->session) return nullptr;
    return static_cast<Stream*>(nghttp2.session_get_stream_user_data(self->session, id));
}

bool note(Session* self, Stream* stream, EventKind kind, PyObject* detail) {
    PyObject* event = Py_BuildValue("(iiO)", int(kind), int(stream->id), detail ? detail : Py_None);
    const bool is_noted = event && PyList_Append(self->events, event) == 0;
    Py_XDECREF(event);
    return is_noted;
}

bool note_readable(Session* self, Stream* stream) {
    if (!stream->is_wanted) return true;
    const Incoming message = stream->next();
    const bool is_there =
        message.is_begun && (message.received == message.size || message.size > self->message_bytes_max);
    if (!is_there && !stream->is_half_closed) return true;
    stream->is_wanted = false;
    --self->wanted_count;
    if (is_there && stream->is_of_batches && self->hot) return add_hot(self, stream);
    return note(self, stream, READABLE, nullptr);
}

bool want(Session* self, Stream* stream) {
    if (!stream->is_wanted) {
        stream->is_wanted = true;
        ++self->wanted_count;
    }
    return give_back_of(self, stream, stream->held_bytes) && widen(self, stream);
}

bool widen(Session* self, Stream* stream) {
    const Incoming message = stream->next();
    if (!stream->is_wanted || !message.is_begun || stream->window > self->window) return true;
    const size_t size = HEAD_BYTES + message.size;
    if (size <= size_t(self->window)) return true;
    return set_window(self, stream, size < size_t(WIDE_WINDOW) ? int32_t(size) : WIDE_WINDOW);
}

bool set_window(Session* self, Stream* stream, int32_t window) {
    if (stream->window == window) return true;
    stream->window = window;
    return nghttp2.session_set_local_window_size(self->session, FLAG_NONE, stream->id, window) == 0;
}

bool give_back(Session* self) {
    if (!self->withheld_bytes || (self->held_bytes > HELD_BYTES_MAX && !self->wanted_count)) return true;
    const size_t bytes = self->withheld_bytes;
    self->withheld_bytes = 0;
    return nghttp2.session_consume_connection(self->session, bytes) == 0;
}

bool give_back_of(Session* self, Stream* stream, size_t bytes) {
    if (bytes > stream->held_bytes) bytes = stream->held_bytes;
    stream->held_bytes -= bytes;
    self->held_bytes -= bytes;
    if (bytes && nghttp2.session_consume_stream(self->session, stream->id, bytes)) return false;
    return give_back(self);
}

bool drop_unread(Session* self, Stream* stream) {
    self->unread_bytes -= stream->drop_in();
    self->held_bytes -= stream->held_bytes;
    stream->held_bytes = 0;
    self->wanted_count -= stream->is_wanted;
    stream->is_wanted = false;
    return give_back(self);
}

bool end_response(Session* self, Stream* stream) {
    stream->is_ended = true;
    if (!drop_unread(self, stream)) return PyErr_NoMemory(), false;
    self->header_bytes -= stream->header_bytes;
    stream->header_bytes = 0;
    return push(self, stream);
}

bool push(Session* self, Stream* stream) {
    if (stream->is_response_begun) {
        if (!stream->is_deferred) return true;
        stream->is_deferred = false;
        return nghttp2.session_resume_data(self->session, stream->id) == 0 || failed(NO_MEMORY);
    }
    stream->is_response_begun = true;
    Field fields[FIRST_FIELDS_MAX + FIELDS_MAX];
    // A status alone is the beginning and the end.
    const bool is_status = stream->is_ended && !stream->has_out();
    size_t count = 0;
    for (; count < (is_status ? 2 : std::size(FIRST_FIELDS)); ++count) fields[count] = FIRST_FIELDS[count];
    count = add_fields(fields, count, stream->first_fields);
    if (is_status && !stream->trailers) fields[count++] = PLAIN_TRAILERS[0];
    if (is_status) count = add_fields(fields, count, stream->trailers);
    Provider provider = {{0}, read_out};
    provider.source.pointer = stream;
    const Provider* body = is_status ? nullptr : &provider;
    const int code = nghttp2.submit_response(self->session, stream->id, fields, count, body);
    return !code || failed(code);
}

bool start(Session* self, size_t streams_max) {
    if (!make_callbacks()) return false;
    self->event_round = 1;
    self->window = FIRST_WINDOW;
    if (nghttp2.session_server_new3(&self->session, callbacks, self, options, &memory)) return failed(NO_MEMORY);
    const Setting settings[] = {{MAX_CONCURRENT_STREAMS, uint32_t(streams_max)},
                                {INITIAL_WINDOW_SIZE, uint32_t(self->own_window)},
                                {MAX_HEADER_LIST_SIZE, uint32_t(self->header_bytes_max)}};
    if (nghttp2.submit_settings(self->session, FLAG_NONE, settings, std::size(settings))) return failed(NO_MEMORY);
    const int code = nghttp2.session_set_local_window_size(self->session, FLAG_NONE, 0, CONNECTION_WINDOW);
    return !code || failed(code);
}

void stop(Session* self) {
    // nghttp2 tells nobody of the streams that are open then.
    while (self->streams) forget(self, self->streams);
    if (self->session) nghttp2.session_del(self->session);
    self->session = nullptr;
}

}  // namespace pequod::http2
