/* The pattern by which tests see whose bytes they read. */
#include "support/check.h"
#include "support/stamp.h"

TEST(a_stamp_shows_one_wrong_byte) {
    enum { BYTES = 20000, STRIDE_BYTES = 4096 };
    static _Alignas(512) unsigned char bytes[BYTES];
    static const size_t places[] = {0, 511, STRIDE_BYTES, BYTES - 512, BYTES - 1};
    for (size_t size = 1; size < 600; size += 37) {
        stamp_write(bytes, size, size, STRIDE_BYTES);
        CHECK(stamp_holds(bytes, size, size, STRIDE_BYTES));
        for (size_t i = 0; i < size; i++) {
            bytes[i] ^= 4;
            CHECK(!stamp_holds(bytes, size, size, STRIDE_BYTES));
            bytes[i] ^= 4;
        }
    }
    stamp_write(bytes, BYTES, 9, STRIDE_BYTES);
    CHECK(stamp_holds(bytes, BYTES, 9, STRIDE_BYTES));
    CHECK(!stamp_holds(bytes, BYTES, 10, STRIDE_BYTES));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bytes[places[i]] ^= 4;
        CHECK(!stamp_holds(bytes, BYTES, 9, STRIDE_BYTES));
        bytes[places[i]] ^= 4;
    }
}
