"""Faults in the connections of HTTP/2."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_HTTP2: Final = (
    Fault(
        "http2/client.cpp",
        "    if (is_given_back && nghttp2.session_consume_stream(session, id, length)) return CALLBACK_FAILURE;\n",
        "",
        "a long reply stands still once it has filled the window of its stream",
    ),
    Fault(
        "http2/client.cpp",
        "    if (!is_given_back) call->held_bytes += length;\n",
        "",
        "messages that a caller takes late open no window",
    ),
    Fault(
        "http2/client.cpp",
        "    const size_t bytes = call->held_bytes;\n    call->held_bytes = 0;\n",
        "    const size_t bytes = 0;\n",
        "the rest of a message that began before it was wanted never comes",
    ),
    Fault(
        "http2/client.cpp",
        "           call->unread_bytes == HEAD_BYTES + message.size;\n",
        "           call->unread_bytes >= HEAD_BYTES + message.size;\n",
        "the second of two replies is lost without a word",
    ),
    Fault(
        "http2/client.cpp",
        "    return call->has_sent_all || nghttp2",
        "    return call->is_ended || nghttp2",
        "a stream is kept whose server ends it before it has let all of the request in",
    ),
    Fault(
        "http2/client.cpp",
        "    if (call->is_over || call->is_let_go) return true;\n    call->is_over = true;\n",
        "    if (call->is_over) return true;\n    call->is_over = true;\n",
        "the end of a call is told that was given up",
    ),
    Fault(
        "http2/client.cpp",
        "    if (!is_long && (call->is_unary || message.received < message.size)) return true;\n",
        "    if (!is_long && message.received < message.size) return true;\n",
        "a call with one reply is told of it before its end",
    ),
    Fault(
        "http2/client.cpp",
        "    if (!call->is_grpc) return 0;\n",
        "",
        "pages of what stands in the place of a server are kept",
    ),
    Fault(
        "http2/client.cpp",
        "    for (Stream* call = self->calls; call && call->id >= id; call = call->behind) {\n",
        "    for (Stream* call = nullptr; call && call->id >= id; call = call->behind) {\n",
        "a call that waits for its turn at the server cannot be given up",
    ),
    Fault(
        "http2/client_calls.cpp",
        "    if (message.is_begun && message.size > self->message_bytes_max) return PyLong_FromSize_t(message.size);\n",
        "",
        "a reply beyond the limit is waited for",
    ),
    Fault(
        "http2/client_calls.cpp",
        "    if (!call || call->is_ended) return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);\n",
        "    if (!call) return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);\n",
        "a request goes on behind its end",
    ),
    Fault(
        "http2/output.cpp",
        "    out.at = out.size = 0;\n",
        "",
        "the bytes of one connection go out on the next one, too",
    ),
    Fault(
        "http2/session.cpp",
        "    self->header_bytes -= stream->header_bytes;\n    stream->header_bytes = 0;\n",
        "    self->header_bytes -= stream->header_bytes;\n",
        "the headers of a call that has ended are subtracted twice",
    ),
    Fault(
        "http2/session.cpp",
        "return give_back_of(self, stream, stream->held_bytes) && widen(self, stream);",
        "return true;",
        "a long message is never let in",
    ),
    Fault(
        "http2/calls.cpp",
        "if (message.is_begun && message.size > self->message_bytes_max) return PyLong_FromSize_t(message.size);",
        "",
        "a message beyond the limit is waited for",
    ),
    Fault(
        "http2/calls.cpp",
        "    self->unsent_bytes -= stream->drop_out();\n",
        "    stream->drop_out();\n",
        "what a reset drops counts for ever",
    ),
    Fault(
        "http2/library.cpp",
        "dlopen(*path ? path : NAME, RTLD_NOW | RTLD_LOCAL)",
        "dlopen(path, RTLD_NOW | RTLD_LOCAL)",
        "the library of the system is not found",
    ),
    Fault(
        "http2/session.cpp",
        "    return nghttp2.submit_rst_stream(session, FLAG_NONE, stream->id, NO_ERROR) ? CALLBACK_FAILURE : 0;\n",
        "    return 0;\n",
        "a stream whose client goes on after the status is kept",
    ),
    Fault(
        "http2/session.cpp",
        "        is_noted = PyList_SetItem(self->events, stream->event_at, Py_NewRef(Py_None)) == 0;\n",
        "",
        "a call begins whose client has reset it",
    ),
    Fault(
        "http2/session.cpp",
        "    nghttp2.option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1);\n",
        "",
        "a token that ends in a space ends its stream without a word",
    ),
    Fault(
        "http2/session.cpp",
        "if (!self->withheld_bytes || (self->held_bytes > HELD_BYTES_MAX && !self->wanted_count)) return true;",
        "if (!self->withheld_bytes) return true;",
        "a client fills the memory with requests that nobody reads",
    ),
    Fault(
        "http2/session.cpp",
        "    if (stream->header_bytes + bytes > self->header_bytes_max) {",
        "    if (bytes > self->header_bytes_max) {",
        "many headers are kept, however long they are together",
    ),
    Fault(
        "http2/session.cpp",
        "        is_done = widen(self, stream);\n",
        "",
        "a long message comes in small pieces whose client hears of the windows meanwhile",
    ),
    Fault(
        "http2/stream.cpp",
        "smaller(message.size, 2 * message.received + KEPT_BYTES)",
        "message.size",
        "a message takes all of its memory as soon as it begins to come",
    ),
    Fault(
        "http2/stream.cpp",
        "        is_lengthy_compressed = message.is_compressed;\n",
        "",
        "a long message that is compressed is taken as it is",
    ),
    Fault(
        "http2/stream.cpp",
        "        in.skip(HEAD_BYTES + message.received);\n",
        "        in.skip(HEAD_BYTES);\n",
        "the beginning of a long message is read again as the next one",
    ),
    Fault(
        "http2/stream.cpp",
        "    unsent_bytes -= written;\n",
        "",
        "what has gone still counts as waiting",
    ),
)
