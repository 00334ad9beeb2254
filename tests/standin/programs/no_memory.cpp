/* Lets host memory end where a test chooses, for the adapter alone: loaded before PyTorch, its
 * operator new is that of all C++ in the process.
 */
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>

static thread_local long left = -1; /* the adapter's, in this thread, until one fails; -1: none */

extern "C" void end_after(long allocations) {
    left = allocations;
}

extern "C" long allocations_left() {
    return left;
}

static bool is_of_adapter(const void *caller) {
    Dl_info info{};
    return dladdr(caller, &info) && strstr(info.dli_fname, "/adapter-2.");
}

void *operator new(std::size_t size) {
    bool ends = left >= 0 && is_of_adapter(__builtin_return_address(0)) && left-- == 0;
    void *given = ends ? nullptr : std::malloc(size ? size : 1);
    return given ? given : throw std::bad_alloc();
}

void operator delete(void *given) noexcept {
    std::free(given);
}

void operator delete(void *given, std::size_t) noexcept {
    std::free(given);
}
