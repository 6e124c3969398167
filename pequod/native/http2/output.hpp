// What both sides of a connection do with nghttp2: its errors, its memory, and its bytes for the socket.
#pragma once

#include "../rows.hpp"
#include "nghttp2.hpp"

namespace pequod::http2 {

// Python's allocator: for the small things that a call takes it is quicker than the system's.
extern Memory memory;

// Set an error of nghttp2, unless one is set; returns null.
PyObject* failed(int code);

// Bytes for the socket, as many as given and a frame at the most; null: an error is set. Without a session: none.
PyObject* take_output(NgSession* session, size_t most);

}  // namespace pequod::http2
