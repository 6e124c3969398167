"""Faults in the connections of HTTP/2."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_HTTP2: Final = (
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
