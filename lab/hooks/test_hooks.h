/* Hooks of lakes for tests: driver calls that fail or are left out, and a check of the order of
 * streams. */
#ifndef GML_HOOKS_TEST_HOOKS_H
#define GML_HOOKS_TEST_HOOKS_H

#include "lake/hooks.h"

/* All 0: no hooks. The order checker does not see refused or skipped calls, except in a lake that
 * can sleep. */
typedef struct gml_test_options {
    uint64_t fail_call;        /* fail the n-th driver call from 1; 0: none */
    uint64_t fail_per_million; /* fail each call with this probability; 0: none */
    uint64_t fail_seed;        /* seed for fail_per_million */
    uint64_t skip_calls;       /* the driver calls whose bit (1 << gml_driver_call) is set answer
                                  GML_OK and are not made */
    bool check_order;          /* refuse, as GML_CORRUPT, to hand memory from one stream to another,
                                  or to unmap it, without an ordering between the two */
} gml_test_options;

/* For gml_lake_config.hooks; the same for the same options, and they live as long as the process.
 * Where there is no host memory for them, no lake opens with what this returns. Thread-safe. */
GML_API const gml_lake_hooks *gml_test_hooks(gml_test_options options);

/* The options of hooks. pre: `hooks` is NULL or of gml_test_hooks(). */
GML_API gml_test_options gml_test_options_of(const gml_lake_hooks *hooks);

/* GML_HOOKS(.fail_call = 3) */
#define GML_HOOKS(...) gml_test_hooks((gml_test_options){__VA_ARGS__})

#endif
