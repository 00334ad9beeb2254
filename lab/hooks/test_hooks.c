/* The wrappers in their order, and hooks that are kept. */
#include "hooks/test_hooks.h"

#include "hooks/fault.h"
#include "hooks/race.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct kept_hooks {
    gml_lake_hooks hooks;
    gml_test_options options;
    struct kept_hooks *next;
} kept_hooks;

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static kept_hooks *all_kept; /* guarded by it; only grows */

static gml_status wrap(const gml_lake_hooks *self, gml_hook_layer layer, gml_driver **driver,
                       gml_checker **checker) {
    const gml_test_options *options = &((const kept_hooks *)self)->options;
    gml_status status = GML_OK;
    if (options->check_order && layer != GML_HOOK_BELOW_SLEEP) {
        status = gml_race_driver_open(*driver, driver, checker);
    }
    bool breaks = options->fail_call || options->fail_per_million || options->skip_calls;
    if (status == GML_OK && breaks && layer != GML_HOOK_ABOVE_SLEEP) {
        status = gml_fault_driver_open(*driver, options->fail_call, options->fail_per_million,
                                       options->fail_seed, driver);
        if (status == GML_OK) {
            status = gml_fault_driver_skip(*driver, options->skip_calls);
        }
    }
    return status;
}

static bool are_same(const gml_test_options *a, const gml_test_options *b) {
    return a->fail_call == b->fail_call && a->fail_per_million == b->fail_per_million &&
           a->fail_seed == b->fail_seed && a->skip_calls == b->skip_calls &&
           a->check_order == b->check_order;
}

static gml_status refuse(const gml_lake_hooks *self, gml_hook_layer layer, gml_driver **driver,
                         gml_checker **checker) {
    (void)self, (void)layer, (void)driver, (void)checker;
    return GML_NO_HOST_MEMORY;
}

static const gml_lake_hooks refusing = {refuse};

const gml_lake_hooks *gml_test_hooks(gml_test_options options) {
    pthread_mutex_lock(&keeping);
    kept_hooks *found = all_kept;
    while (found && !are_same(&found->options, &options)) {
        found = found->next;
    }
    if (!found) {
        found = malloc(sizeof *found);
        if (found) {
            *found = (kept_hooks){{wrap}, options, all_kept};
            all_kept = found;
        }
    }
    pthread_mutex_unlock(&keeping);
    return found ? &found->hooks : &refusing;
}

gml_test_options gml_test_options_of(const gml_lake_hooks *hooks) {
    return hooks ? ((const kept_hooks *)hooks)->options : (gml_test_options){0};
}
