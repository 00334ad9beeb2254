/* A library of the watched program whose constructor calls back: what GMLAKE_TEST_ON_LOAD points
 * to. The dynamic linker holds its lock meanwhile. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void call_back(void) {
    const char *text = getenv("GMLAKE_TEST_ON_LOAD");
    uintptr_t address = text ? (uintptr_t)strtoull(text, NULL, 10) : 0;
    void (*function)(void) = NULL;
    memcpy(&function, &address, sizeof function);
    if (function) {
        function();
    }
}
