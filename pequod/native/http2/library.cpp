#include "nghttp2.hpp"

#include <dlfcn.h>

#include "nghttp2_check.hpp"

namespace pequod::http2 {

Library nghttp2 = {};

namespace {

// The interface of this number is unchanged since 2015.
#ifdef __APPLE__
constexpr const char* NAME = "libnghttp2.14.dylib";
#else
constexpr const char* NAME = "libnghttp2.so.14";
#endif

struct Symbol {
    const char* name;
    void** place;
};

#define PEQUOD_SYMBOL(result, name, arguments) {"nghttp2_" #name, reinterpret_cast<void**>(&nghttp2.name)},

const Symbol SYMBOLS[] = {PEQUOD_NGHTTP2_FUNCTIONS(PEQUOD_SYMBOL)};

const Symbol LATER_SYMBOLS[] = {PEQUOD_NGHTTP2_LATER(PEQUOD_SYMBOL)};

#undef PEQUOD_SYMBOL

bool is_loaded = false;

}  // namespace

const char* load(const char* path) {
    if (is_loaded) return nullptr;
    // Not unloaded: sessions of the process use it.
    void* library = dlopen(*path ? path : NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library) return dlerror();
    for (const Symbol& symbol : SYMBOLS) {
        *symbol.place = dlsym(library, symbol.name);
        // The last function that was added to nghttp2 came with 1.50, in 2022.
        if (!*symbol.place) return dlerror();
    }
    for (const Symbol& symbol : LATER_SYMBOLS) *symbol.place = dlsym(library, symbol.name);
    is_loaded = true;
    return nullptr;
}

}  // namespace pequod::http2
