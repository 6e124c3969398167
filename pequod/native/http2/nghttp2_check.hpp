// Our declarations of nghttp2 held against its header, when it is installed where the core is compiled.
#pragma once

#if __has_include(<nghttp2/nghttp2.h>)

#include <nghttp2/nghttp2.h>

#include <type_traits>

#include "nghttp2.hpp"

namespace pequod::http2 {

#define PEQUOD_SAME_PLACE(ours, our_member, theirs, their_member)                 \
    static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) && \
                  sizeof(ours::our_member) == sizeof(theirs::their_member))

PEQUOD_SAME_PLACE(FrameHead, length, nghttp2_frame_hd, length);
PEQUOD_SAME_PLACE(FrameHead, stream, nghttp2_frame_hd, stream_id);
PEQUOD_SAME_PLACE(FrameHead, kind, nghttp2_frame_hd, type);
PEQUOD_SAME_PLACE(FrameHead, flags, nghttp2_frame_hd, flags);
PEQUOD_SAME_PLACE(Frame, head, nghttp2_frame, hd);
PEQUOD_SAME_PLACE(NgPiece, base, nghttp2_vec, base);
PEQUOD_SAME_PLACE(NgPiece, size, nghttp2_vec, len);
PEQUOD_SAME_PLACE(Field, name, nghttp2_nv, name);
PEQUOD_SAME_PLACE(Field, value, nghttp2_nv, value);
PEQUOD_SAME_PLACE(Field, name_size, nghttp2_nv, namelen);
PEQUOD_SAME_PLACE(Field, value_size, nghttp2_nv, valuelen);
PEQUOD_SAME_PLACE(Field, flags, nghttp2_nv, flags);
PEQUOD_SAME_PLACE(Source, pointer, nghttp2_data_source, ptr);
PEQUOD_SAME_PLACE(Provider, source, nghttp2_data_provider, source);
PEQUOD_SAME_PLACE(Provider, read, nghttp2_data_provider, read_callback);
PEQUOD_SAME_PLACE(Memory, user, nghttp2_mem, mem_user_data);
PEQUOD_SAME_PLACE(Memory, allocate, nghttp2_mem, malloc);
PEQUOD_SAME_PLACE(Memory, release, nghttp2_mem, free);
PEQUOD_SAME_PLACE(Memory, allocate_zeros, nghttp2_mem, calloc);
PEQUOD_SAME_PLACE(Memory, change, nghttp2_mem, realloc);
PEQUOD_SAME_PLACE(Setting, id, nghttp2_settings_entry, settings_id);
PEQUOD_SAME_PLACE(Setting, value, nghttp2_settings_entry, value);
static_assert(sizeof(FrameHead) == sizeof(nghttp2_frame_hd) && sizeof(NgPiece) == sizeof(nghttp2_vec));
static_assert(sizeof(Field) == sizeof(nghttp2_nv) && sizeof(Source) == sizeof(nghttp2_data_source));
static_assert(sizeof(Memory) == sizeof(nghttp2_mem));
static_assert(sizeof(Provider) == sizeof(nghttp2_data_provider) && sizeof(Setting) == sizeof(nghttp2_settings_entry));

#define PEQUOD_SAME_NUMBER(ours, theirs) static_assert(int(ours) == int(theirs))

PEQUOD_SAME_NUMBER(DEFERRED, NGHTTP2_ERR_DEFERRED);
PEQUOD_SAME_NUMBER(NO_MEMORY, NGHTTP2_ERR_NOMEM);
PEQUOD_SAME_NUMBER(CALLBACK_FAILURE, NGHTTP2_ERR_CALLBACK_FAILURE);
PEQUOD_SAME_NUMBER(DATA, NGHTTP2_DATA);
PEQUOD_SAME_NUMBER(HEADERS, NGHTTP2_HEADERS);
PEQUOD_SAME_NUMBER(SETTINGS, NGHTTP2_SETTINGS);
PEQUOD_SAME_NUMBER(GOAWAY, NGHTTP2_GOAWAY);
PEQUOD_SAME_NUMBER(CONTINUATION, NGHTTP2_CONTINUATION);
PEQUOD_SAME_NUMBER(FLAG_NONE, NGHTTP2_FLAG_NONE);
PEQUOD_SAME_NUMBER(FLAG_END_STREAM, NGHTTP2_FLAG_END_STREAM);
PEQUOD_SAME_NUMBER(FLAG_ACK, NGHTTP2_FLAG_ACK);
PEQUOD_SAME_NUMBER(DATA_EOF, NGHTTP2_DATA_FLAG_EOF);
PEQUOD_SAME_NUMBER(DATA_NO_END_STREAM, NGHTTP2_DATA_FLAG_NO_END_STREAM);
PEQUOD_SAME_NUMBER(FIELD_NONE, NGHTTP2_NV_FLAG_NONE);
PEQUOD_SAME_NUMBER(FIELD_UNINDEXED, NGHTTP2_NV_FLAG_NO_INDEX);
PEQUOD_SAME_NUMBER(FIELD_STATIC, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE);
PEQUOD_SAME_NUMBER(ENABLE_PUSH, NGHTTP2_SETTINGS_ENABLE_PUSH);
PEQUOD_SAME_NUMBER(MAX_CONCURRENT_STREAMS, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
PEQUOD_SAME_NUMBER(INITIAL_WINDOW_SIZE, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
PEQUOD_SAME_NUMBER(MAX_HEADER_LIST_SIZE, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
PEQUOD_SAME_NUMBER(NO_ERROR, NGHTTP2_NO_ERROR);
PEQUOD_SAME_NUMBER(ENHANCE_YOUR_CALM, NGHTTP2_ENHANCE_YOUR_CALM);

#undef PEQUOD_SAME_NUMBER
#undef PEQUOD_SAME_PLACE

// The functions' types, made of the library's own.
namespace theirs {

using NgSession = nghttp2_session;
using NgCallbacks = nghttp2_session_callbacks;
using NgOption = nghttp2_option;
using NgBuffer = nghttp2_rcbuf;
using NgPriority = nghttp2_priority_spec;
using FrameHead = nghttp2_frame_hd;
using Frame = nghttp2_frame;
using NgPiece = nghttp2_vec;
using Field = nghttp2_nv;
using Source = nghttp2_data_source;
using Provider = nghttp2_data_provider;
using Setting = nghttp2_settings_entry;
using Memory = nghttp2_mem;
PEQUOD_NGHTTP2_CALLBACKS

static_assert(std::is_same_v<ReadOut, decltype(Provider::read_callback)>);

#define PEQUOD_SAME_TYPE(result, name, arguments) \
    static_assert(std::is_same_v<decltype(&::nghttp2_##name), result(*) arguments>, #name);

PEQUOD_NGHTTP2_FUNCTIONS(PEQUOD_SAME_TYPE)
#if NGHTTP2_VERSION_NUM >= 0x013900
PEQUOD_NGHTTP2_LATER(PEQUOD_SAME_TYPE)
#endif

#undef PEQUOD_SAME_TYPE

}  // namespace theirs

}  // namespace pequod::http2

#endif
