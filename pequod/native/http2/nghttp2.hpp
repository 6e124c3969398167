// The part of nghttp2 that connections use, found at run time: its source is not here, and no compiler needs it.
//
// The declarations are our own. nghttp2_check.hpp holds them against the library's header where that is installed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace pequod::http2 {

// The library's own; only pointers to them are used.
struct NgSession;
struct NgCallbacks;
struct NgOption;
struct NgBuffer;
struct NgPriority;

struct FrameHead {
    size_t length;
    int32_t stream;
    uint8_t kind;
    uint8_t flags;
    uint8_t reserved;
};

// The beginning of a union of all kinds of frames.
struct Frame {
    FrameHead head;
};

struct NgPiece {
    uint8_t* base;
    size_t size;
};

struct Field {
    uint8_t* name;
    uint8_t* value;
    size_t name_size;
    size_t value_size;
    uint8_t flags;
};

union Source {
    int number;
    void* pointer;
};

struct Setting {
    int32_t id;
    uint32_t value;
};

// Types of functions; nghttp2_check.hpp makes them again of the library's types.
#define PEQUOD_NGHTTP2_CALLBACKS                                                                   \
    using ReadOut = ssize_t (*)(NgSession*, int32_t, uint8_t*, size_t, uint32_t*, Source*, void*); \
    using OnHead = int (*)(NgSession*, const FrameHead*, void*);                                   \
    using OnFrame = int (*)(NgSession*, const Frame*, void*);                                      \
    using OnHeader = int (*)(NgSession*, const Frame*, NgBuffer*, NgBuffer*, uint8_t, void*);      \
    using OnData = int (*)(NgSession*, uint8_t, int32_t, const uint8_t*, size_t, void*);           \
    using OnClose = int (*)(NgSession*, int32_t, uint32_t, void*);

PEQUOD_NGHTTP2_CALLBACKS

struct Provider {
    Source source;
    ReadOut read;
};

// Where the library's memory comes from; the last argument of each function is `user`.
struct Memory {
    void* user;
    void* (*allocate)(size_t, void*);
    void (*release)(void*, void*);
    void* (*allocate_zeros)(size_t, size_t, void*);
    void* (*change)(void*, size_t, void*);
};

// Each function: what it returns, its name behind `nghttp2_`, what it takes.
#define PEQUOD_NGHTTP2_FUNCTIONS(X)                                                                           \
    X(const char*, strerror, (int))                                                                           \
    X(int, session_callbacks_new, (NgCallbacks**))                                                            \
    X(void, session_callbacks_set_on_begin_frame_callback, (NgCallbacks*, OnHead))                            \
    X(void, session_callbacks_set_on_begin_headers_callback, (NgCallbacks*, OnFrame))                         \
    X(void, session_callbacks_set_on_header_callback2, (NgCallbacks*, OnHeader))                              \
    X(void, session_callbacks_set_on_data_chunk_recv_callback, (NgCallbacks*, OnData))                        \
    X(void, session_callbacks_set_on_frame_recv_callback, (NgCallbacks*, OnFrame))                            \
    X(void, session_callbacks_set_on_frame_send_callback, (NgCallbacks*, OnFrame))                            \
    X(void, session_callbacks_set_on_stream_close_callback, (NgCallbacks*, OnClose))                          \
    X(int, option_new, (NgOption**))                                                                          \
    X(void, option_set_no_auto_window_update, (NgOption*, int))                                               \
    X(void, option_set_no_closed_streams, (NgOption*, int))                                                   \
    X(void, option_set_max_outbound_ack, (NgOption*, size_t))                                                 \
    X(void, option_set_no_rfc9113_leading_and_trailing_ws_validation, (NgOption*, int))                       \
    X(NgPiece, rcbuf_get_buf, (NgBuffer*))                                                                    \
    X(int, session_server_new3, (NgSession**, const NgCallbacks*, void*, const NgOption*, Memory*))           \
    X(int, session_client_new3, (NgSession**, const NgCallbacks*, void*, const NgOption*, Memory*))           \
    X(void, session_del, (NgSession*))                                                                        \
    X(ssize_t, session_mem_recv, (NgSession*, const uint8_t*, size_t))                                        \
    X(ssize_t, session_mem_send, (NgSession*, const uint8_t**))                                               \
    X(int, session_want_read, (NgSession*))                                                                   \
    X(int, session_want_write, (NgSession*))                                                                  \
    X(int, session_set_stream_user_data, (NgSession*, int32_t, void*))                                        \
    X(void*, session_get_stream_user_data, (NgSession*, int32_t))                                             \
    X(int, session_consume_connection, (NgSession*, size_t))                                                  \
    X(int, session_consume_stream, (NgSession*, int32_t, size_t))                                             \
    X(int, session_set_local_window_size, (NgSession*, uint8_t, int32_t, int32_t))                            \
    X(int32_t, session_get_last_proc_stream_id, (NgSession*))                                                 \
    X(int, session_terminate_session, (NgSession*, uint32_t))                                                 \
    X(int, session_resume_data, (NgSession*, int32_t))                                                        \
    X(int, submit_settings, (NgSession*, uint8_t, const Setting*, size_t))                                    \
    X(int, session_check_request_allowed, (NgSession*))                                                       \
    X(int32_t, submit_request, (NgSession*, const NgPriority*, const Field*, size_t, const Provider*, void*)) \
    X(int, submit_response, (NgSession*, int32_t, const Field*, size_t, const Provider*))                     \
    X(int, submit_trailer, (NgSession*, int32_t, const Field*, size_t))                                       \
    X(int, submit_rst_stream, (NgSession*, uint8_t, int32_t, uint32_t))                                       \
    X(int, submit_ping, (NgSession*, uint8_t, const uint8_t*))                                                \
    X(int, submit_shutdown_notice, (NgSession*))                                                              \
    X(int, submit_goaway, (NgSession*, uint8_t, int32_t, uint32_t, const uint8_t*, size_t))

// The same for functions that older libraries do not have.
#define PEQUOD_NGHTTP2_LATER(X) X(void, option_set_stream_reset_rate_limit, (NgOption*, uint64_t, uint64_t))

enum Code : int {
    DEFERRED = -508,
    NO_MEMORY = -901,
    CALLBACK_FAILURE = -902,
};
enum FrameKind : uint8_t { DATA = 0, HEADERS = 1, SETTINGS = 4, GOAWAY = 7, CONTINUATION = 9 };
enum FrameFlag : uint8_t { FLAG_NONE = 0, FLAG_END_STREAM = 1, FLAG_ACK = 1 };
enum DataFlag : uint32_t { DATA_EOF = 1, DATA_NO_END_STREAM = 2 };
enum FieldFlag : uint8_t { FIELD_NONE = 0, FIELD_UNINDEXED = 1, FIELD_STATIC = 6 };
enum SettingId : int32_t {
    ENABLE_PUSH = 2,
    MAX_CONCURRENT_STREAMS = 3,
    INITIAL_WINDOW_SIZE = 4,
    MAX_HEADER_LIST_SIZE = 6
};
enum ErrorCode : uint32_t { NO_ERROR = 0, ENHANCE_YOUR_CALM = 11 };

#define PEQUOD_NGHTTP2_POINTER(result, name, arguments) result(*name) arguments;

struct Library {
    PEQUOD_NGHTTP2_FUNCTIONS(PEQUOD_NGHTTP2_POINTER)
    PEQUOD_NGHTTP2_LATER(PEQUOD_NGHTTP2_POINTER)
};

// Of all connections; its pointers are null before `load`, and those of later functions may stay so.
extern Library nghttp2;

// Find the library: at a path, or where the system has it. Returns null, or why it is not there.
//
// REQUIRES: Python's lock is held. A second call does nothing if the first one found it.
const char* load(const char* path);

}  // namespace pequod::http2
