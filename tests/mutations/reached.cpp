// Notes which blocks of the native core run, in a file that all processes of a test share. GCC calls it at the begin
// of each block that it compiles with -fsanitize-coverage=trace-pc; this file is compiled without.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

extern "C" const char __ehdr_start __attribute__((visibility("hidden")));

namespace {

// A byte for each one of the core: 1 where a block returned to has run. Null: nobody asks.
char* reached = nullptr;
long room = 0;

__attribute__((constructor)) void open_file() {
    const char* name = std::getenv("PEQUOD_REACHED");
    const int file = name ? open(name, O_RDWR) : -1;
    struct stat found;
    if (file < 0 || fstat(file, &found)) return;
    void* mapped = mmap(nullptr, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    room = found.st_size;
    reached = static_cast<char*>(mapped);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void __sanitizer_cov_trace_pc() {
    const long at = static_cast<const char*>(__builtin_return_address(0)) - &__ehdr_start;
    if (reached && at < room) reached[at] = 1;
}
