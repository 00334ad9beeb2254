/* What a convolution works in, beside what an H100 asked for: PyTorch 2.11, cuDNN 9.19, float32
 * with TF32. */
#include "standin/libraries/conv_workspace.h"
#include "support/check.h"

#include <stddef.h>

enum { FILL = 8 << 10 /* cuDNN's own few bytes, in a table of convolutions of megabytes */ };

typedef struct measured {
    standin_convolution of;
    uint64_t size_bytes;
} measured;

#define LAST true
#define FIRST false

static void compare(const measured *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t found = standin_convolution_workspace(&rows[i].of), real = rows[i].size_bytes;
        uint64_t apart = found > real ? found - real : real - found;
        if (!CHECK(apart <= real / 100 + FILL)) {
            fprintf(stderr, "row %zu: %" PRIu64 " bytes, an H100 asked for %" PRIu64 "\n", i, found,
                    real);
        }
    }
}

#define COMPARE(rows) compare(rows, sizeof(rows) / sizeof(rows)[0])

TEST(twice_as_many_channels_are_written_where_they_belong) {
    static const measured rows[] = {
        {{STANDIN_FORWARD, {128, 64, 112, 112}, {128, 64, 3, 3}, {128, 128, 112, 112}, 4, FIRST},
         411336720},
        {{STANDIN_DATA, {128, 64, 112, 112}, {128, 64, 3, 3}, {128, 128, 112, 112}, 4, FIRST},
         1233420435},
        {{STANDIN_FORWARD, {128, 64, 112, 112}, {128, 64, 3, 3}, {128, 128, 112, 112}, 2, FIRST},
         616710291},
        {{STANDIN_FORWARD, {128, 96, 56, 56}, {192, 96, 2, 2}, {128, 192, 28, 28}, 4, FIRST},
         154435600},
        {{STANDIN_FORWARD, {128, 256, 28, 28}, {512, 256, 3, 3}, {128, 512, 28, 28}, 4, FIRST},
         313000083},
    };
    COMPARE(rows);
}

TEST(channels_last_need_no_turning) {
    static const measured rows[] = {
        {{STANDIN_FORWARD, {128, 64, 224, 224}, {64, 64, 3, 3}, {128, 64, 224, 224}, 2, LAST}, 131},
        {{STANDIN_DATA, {128, 64, 224, 224}, {64, 64, 3, 3}, {128, 64, 224, 224}, 4, LAST}, 131},
        {{STANDIN_FORWARD, {192, 512, 28, 28}, {128, 512, 1, 1}, {192, 128, 28, 28}, 2, LAST}, 0},
    };
    COMPARE(rows);
}

TEST(a_filter_of_one_point_is_a_product_of_matrices) {
    static const measured rows[] = {
        {{STANDIN_FORWARD, {192, 64, 56, 56}, {256, 64, 1, 1}, {192, 256, 56, 56}, 2, FIRST}, 272},
        {{STANDIN_DATA, {192, 64, 56, 56}, {256, 64, 1, 1}, {192, 256, 56, 56}, 2, FIRST}, 272},
        {{STANDIN_FILTER, {192, 64, 56, 56}, {256, 64, 1, 1}, {192, 256, 56, 56}, 2, FIRST},
         12582912},
        {{STANDIN_FILTER, {128, 896, 14, 14}, {896, 896, 1, 1}, {128, 896, 14, 14}, 2, FIRST},
         89915408},
        {{STANDIN_FORWARD, {256, 72, 1, 1}, {24, 72, 1, 1}, {256, 24, 1, 1}, 4, FIRST}, 0},
        {{STANDIN_FILTER, {256, 72, 1, 1}, {24, 72, 1, 1}, {256, 24, 1, 1}, 4, FIRST}, 0},
        {{STANDIN_FORWARD, {192, 512, 7, 7}, {2048, 512, 1, 1}, {192, 2048, 7, 7}, 2, FIRST},
         48169107},
    };
    COMPARE(rows);
}

TEST(one_that_skips_points_turns_both_pictures_round) {
    static const measured rows[] = {
        {{STANDIN_FORWARD, {192, 1024, 14, 14}, {2048, 1024, 1, 1}, {192, 2048, 7, 7}, 2, FIRST},
         115605651},
        {{STANDIN_DATA, {192, 512, 28, 28}, {1024, 512, 1, 1}, {192, 1024, 14, 14}, 2, FIRST},
         231211155},
        {{STANDIN_FILTER, {128, 224, 56, 56}, {448, 224, 1, 1}, {128, 448, 28, 28}, 4, FIRST},
         547881615},
    };
    COMPARE(rows);
}

TEST(eight_groups_are_worked_on_together) {
    static const measured rows[] = {
        {{STANDIN_FORWARD, {128, 224, 56, 56}, {224, 56, 3, 3}, {128, 224, 56, 56}, 2, FIRST},
         359887424},
        {{STANDIN_FORWARD, {128, 896, 14, 14}, {896, 56, 3, 3}, {128, 896, 14, 14}, 2, FIRST},
         45409408},
        {{STANDIN_FILTER, {128, 224, 56, 56}, {224, 56, 3, 3}, {128, 224, 56, 56}, 2, LAST},
         411926991},
        {{STANDIN_FILTER, {128, 2016, 14, 14}, {2016, 56, 3, 3}, {128, 2016, 7, 7}, 2, FIRST},
         28551296},
    };
    COMPARE(rows);
}

TEST(the_channels_of_pictures_are_filled_up) {
    static const measured rows[] = {
        {{STANDIN_FORWARD, {192, 3, 224, 224}, {64, 3, 7, 7}, {192, 64, 112, 112}, 2, FIRST},
         462472208},
        {{STANDIN_FORWARD, {192, 3, 224, 224}, {64, 3, 7, 7}, {192, 64, 112, 112}, 2, LAST},
         154190864},
        {{STANDIN_FORWARD, {192, 3, 224, 224}, {64, 3, 7, 7}, {192, 64, 112, 112}, 4, FIRST},
         732205840},
        {{STANDIN_DATA, {128, 3, 224, 224}, {64, 3, 3, 3}, {128, 64, 224, 224}, 2, FIRST},
         924853395},
        {{STANDIN_FORWARD, {128, 3, 224, 224}, {64, 3, 3, 3}, {128, 64, 224, 224}, 2, FIRST}, 0},
        {{STANDIN_FORWARD, {128, 3, 224, 224}, {96, 3, 4, 4}, {128, 96, 56, 56}, 4, FIRST},
         102785040},
        {{STANDIN_FORWARD, {256, 3, 224, 224}, {768, 3, 16, 16}, {256, 768, 14, 14}, 4, LAST},
         208666640},
        {{STANDIN_DATA, {256, 3, 224, 224}, {768, 3, 16, 16}, {256, 768, 14, 14}, 2, FIRST}, 0},
        {{STANDIN_DATA, {128, 3, 224, 224}, {96, 3, 4, 4}, {128, 96, 56, 56}, 2, LAST}, 115614736},
        {{STANDIN_FILTER, {128, 3, 224, 224}, {64, 3, 3, 3}, {128, 64, 224, 224}, 2, FIRST},
         929608848},
        {{STANDIN_FILTER, {128, 3, 224, 224}, {64, 3, 3, 3}, {128, 64, 224, 224}, 4, LAST}, 0},
    };
    COMPARE(rows);
}

int main(void) {
    return check_all();
}
