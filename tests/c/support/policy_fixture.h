/* A policy over a `sim` driver, without the lake above it. */
#ifndef GML_TEST_POLICY_FIXTURE_H
#define GML_TEST_POLICY_FIXTURE_H

#include "policy/policy.h"
#include "support/check.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)

typedef struct fixture {
    const gml_policy_ops *ops;
    gml_driver *driver;
    gml_policy *policy;
    gml_knobs knobs;
    uint64_t device_bytes;   /* 0: 80 GiB */
    uint64_t capacity_bytes; /* 0: the device's */
    uint64_t fail_call;      /* the n-th driver call fails; 0: none */
    bool never_trims;        /* in fixture_work() */
} fixture;

/* All defaults, nothing opened: the fields may be changed before fixture_start(). */
fixture fixture_of(const gml_policy_ops *ops);

void fixture_start(fixture *f);

/* Checks, destroys, and sees that the driver has everything back. */
void fixture_stop(fixture *f);

/* Every structure is sound, and the driver agrees with reserved_bytes. */
bool is_sound(const fixture *f);

/* What the driver has given out and not taken back. */
uint64_t held_by_driver(const fixture *f);

/* Driver calls made, those that cannot fail left out. */
uint64_t count_calls(const fixture *f);

/* An allocation that must succeed; ends the program otherwise. */
gml_block *get(fixture *f, uint64_t size_bytes, gml_stream stream);
void give(fixture *f, gml_block *block);

/* Zeroed where the policy fills nothing. */
gml_torch_stats stats_of(fixture *f);

/* Allocates, frees and trims at random on three streams, with all checks every `check_every` steps,
 * and frees everything; returns how many requests were refused. */
uint64_t fixture_work(fixture *f, uint64_t seed, int steps, int check_every);

#endif
