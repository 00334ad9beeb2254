#include "standin/libraries/conv_workspace.h"

#include "base/rounding.h"

enum {
    FEW_CHANNELS = 8,      /* pictures have three */
    GROUPS_AT_ONCE = 8,    /* that are worked on together */
    FEW_GROUPS = 32,       /* whose channels are filled up */
    CHANNELS_AT_ONCE = 64, /* of a group, in the gradient of a filter */
    LARGE_FILTER = 7,      /* that is worth turning a picture round for */
    SMALL_PICTURE = 49,    /* 7 x 7: too small for a plain product of matrices */
    MANY_WEIGHTS = 1 << 20,
    DOUBLED = 128,         /* channels, from which on the result is turned round in any case */
    PARTS = 13,            /* of the gradient of a filter, at most, */
    PARTS_BYTES = 8 << 20, /* and as long as they are small */
    THINNER = 128,         /* channels before and after, too few for a product of matrices */
};

typedef struct sizes {
    uint64_t in, filter, out; /* in bytes */
} sizes;

static uint64_t elements(const int64_t dimensions[4]) {
    uint64_t product = 1;
    for (int i = 0; i < 4; i++) {
        product *= dimensions[i] > 0 ? (uint64_t)dimensions[i] : 1;
    }
    return product;
}

/* The gradient of a filter is worked out in parts of all pictures, which are summed up in the end.
 */
static uint64_t parts_of(const standin_convolution *of) {
    uint64_t part = elements(of->filter) * sizeof(float);
    bool is_single = of->element_bytes == sizeof(float);
    uint64_t room = is_single ? PARTS_BYTES : 2 * PARTS_BYTES;
    uint64_t count = gml_least(room / part, is_single ? PARTS + 1 : PARTS);
    return of->pass == STANDIN_FILTER ? (count ? count * part : part / 12 * 11) : 0;
}

/* The filter moves by its own length, as where pictures are cut into patches. */
static bool cuts_patches(const standin_convolution *of) {
    return of->filter[2] > 1 && of->in[2] == of->out[2] * of->filter[2];
}

/* Few channels: they are filled up in the copy, if there is one. */
static uint64_t of_picture(const standin_convolution *of, sizes plain) {
    uint64_t channels = of->in[1] > 0 ? (uint64_t)of->in[1] : 1;
    uint64_t filled = of->element_bytes == 2 ? FEW_CHANNELS : 4;
    sizes wide = {plain.in / channels * filled, plain.filter / channels * filled, plain.out};
    uint64_t turned = of->has_channels_last ? 0 : wide.out;
    bool is_large = of->filter[2] >= LARGE_FILTER;
    switch (of->pass) {
    case STANDIN_FORWARD:
        if (is_large && of->element_bytes == 4 && !cuts_patches(of)) {
            return plain.in + plain.out + plain.filter;
        }
        if (is_large && of->element_bytes == 4) {
            return wide.in + wide.filter;
        }
        return is_large ? wide.in + turned + wide.filter
                        : (of->element_bytes == 4 && cuts_patches(of) ? wide.in : 0);
    case STANDIN_DATA:
        if (of->element_bytes == 4 || (is_large && cuts_patches(of))) {
            return 0;
        }
        return cuts_patches(of) ? plain.in + plain.out + plain.filter
                                : (of->has_channels_last && !is_large ? 0 : wide.in + turned);
    default:
        return of->element_bytes == 4 && !is_large ? 0 : wide.in + turned + wide.filter;
    }
}

static uint64_t of_groups(const standin_convolution *of, sizes plain, uint64_t groups) {
    uint64_t channels = of->filter[1] > 0 ? (uint64_t)of->filter[1] : 1;
    uint64_t filled = (channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE * CHANNELS_AT_ONCE;
    uint64_t all = plain.in + plain.out + plain.filter;
    if (of->pass != STANDIN_FILTER) {
        return all / groups * gml_least(groups, GROUPS_AT_ONCE);
    }
    return groups < FEW_GROUPS ? (plain.in + plain.out) / channels * filled
                               : all / groups * GROUPS_AT_ONCE;
}

/* A filter of one point is a product of matrices, of which each picture's is one. */
static uint64_t of_points(const standin_convolution *of, sizes plain) {
    uint64_t all = plain.in + plain.out;
    bool skips = of->in[2] != of->out[2];
    if (of->out[2] * of->out[3] == 1) {
        return 0; /* one product for all pictures */
    }
    bool is_small =
        of->out[2] * of->out[3] <= SMALL_PICTURE && elements(of->filter) >= MANY_WEIGHTS;
    if (skips || is_small) {
        return all + parts_of(of);
    }
    uint64_t sums = elements(of->filter) * sizeof(float) * (uint64_t)of->in[0];
    return of->pass == STANDIN_FILTER ? gml_least(sums, all) : 0;
}

/* The result is written where it belongs: seen where few channels become twice as many. */
static bool writes_in_place(const standin_convolution *of) {
    return of->pass == STANDIN_FORWARD && of->element_bytes == 4 && of->in[1] < DOUBLED &&
           of->filter[0] == 2 * of->in[1];
}

uint64_t standin_convolution_workspace(const standin_convolution *of) {
    sizes plain = {elements(of->in) * of->element_bytes, elements(of->filter) * of->element_bytes,
                   elements(of->out) * of->element_bytes};
    uint64_t groups = of->filter[1] > 0 ? (uint64_t)(of->in[1] / of->filter[1]) : 1;
    if (groups > 1) {
        return of->filter[1] == 1 ? 0 : of_groups(of, plain, groups);
    }
    if (of->in[1] < FEW_CHANNELS) {
        return of_picture(of, plain);
    }
    if (of->has_channels_last) {
        return of->filter[2] > 1 ? parts_of(of) : 0;
    }
    if (of->filter[2] == 1 && of->filter[3] == 1) {
        return of_points(of, plain);
    }
    return plain.in + (writes_in_place(of) ? 0 : plain.out) + plain.filter + parts_of(of);
}
