/* A training step in small: activations forward, gradients and temporaries backward, gradients
 * freed at the beginning of the next step.
 */
#ifndef GML_TEST_TRAINER_H
#define GML_TEST_TRAINER_H

#include "gmlake.h"
#include "support/check.h"

#define MIB (UINT64_C(1) << 20)

enum { TRAINER_LAYERS = 12, TRAINER_PER_LAYER = 4, TRAINER_MOST = 256 };

typedef struct item {
    gml_address address;
    uint64_t size_bytes, seed;
} item;

typedef struct trainer {
    gml_lake *lake;
    gml_stream stream;
    uint64_t scale; /* of activations: a sequence length */
    uint64_t kind;
    check_random random;    /* of drift */
    uint64_t drift_percent; /* of requests */
    item activations[TRAINER_MOST], gradients[TRAINER_MOST], extras[TRAINER_MOST];
    size_t activation_count, gradient_count, extra_count;
    uint64_t refused, failed;
    bool fills;    /* on `host` */
    bool may_fail; /* a driver call fails */
} trainer;

/* Ends the program on failure. */
gml_lake *trainer_open_lake(const char *driver, const char *policy, uint64_t capacity_bytes);

/* Checks and trims a lake without live blocks, sees that nothing is left, closes it. */
void trainer_close(gml_lake *lake);

gml_stats trainer_stats(gml_lake *lake);
uint64_t trainer_calls(gml_lake *lake);
gml_address trainer_take(gml_lake *lake, uint64_t size_bytes, gml_stream stream);
gml_state trainer_state(gml_lake *lake, gml_address address);

/* One allocation, stamped on `host`; false where it was refused. */
bool trainer_request(trainer *self, uint64_t size_bytes, item *out);
void trainer_drop(trainer *self, const item *dropped);
void trainer_drop_gradients(trainer *self);

/* The two halves of a step. */
void trainer_forward(trainer *self);
void trainer_backward(trainer *self);

#endif
