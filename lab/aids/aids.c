/* The wrappers in their order, and hooks that are kept. */
#include "aids/aids.h"

#include "aids/fault.h"
#include "aids/race.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct kept_hooks {
    gml_lake_hooks hooks;
    gml_aids aids;
    struct kept_hooks *next;
} kept_hooks;

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static kept_hooks *all_kept; /* guarded by it; only grows */

static gml_status
wrap(const gml_lake_hooks *self, gml_hook_layer layer, gml_driver **driver, gml_watcher **watcher)
{
    const gml_aids *aids = &((const kept_hooks *)self)->aids;
    gml_status status = GML_OK;
    if (aids->check_order && layer != GML_HOOK_BELOW_SLEEP) {
        status = gml_race_driver_open(*driver, driver, watcher);
    }
    bool breaks = aids->fail_call || aids->fail_per_million || aids->skip_calls;
    if (status == GML_OK && breaks && layer != GML_HOOK_ABOVE_SLEEP) {
        status = gml_fault_driver_open(*driver, aids->fail_call, aids->fail_per_million,
                                       aids->fail_seed, driver);
        if (status == GML_OK) {
            status = gml_fault_driver_skip(*driver, aids->skip_calls);
        }
    }
    return status;
}

static bool
are_same(const gml_aids *a, const gml_aids *b)
{
    return a->fail_call == b->fail_call && a->fail_per_million == b->fail_per_million &&
           a->fail_seed == b->fail_seed && a->skip_calls == b->skip_calls &&
           a->check_order == b->check_order;
}

static gml_status
refuse(const gml_lake_hooks *self, gml_hook_layer layer, gml_driver **driver, gml_watcher **watcher)
{
    (void)self, (void)layer, (void)driver, (void)watcher;
    return GML_NO_HOST_MEMORY;
}

static const gml_lake_hooks refusing = {refuse};

const gml_lake_hooks *
gml_aids_hooks(gml_aids aids)
{
    pthread_mutex_lock(&keeping);
    kept_hooks *found = all_kept;
    while (found && !are_same(&found->aids, &aids)) {
        found = found->next;
    }
    if (!found) {
        found = malloc(sizeof *found);
        if (found) {
            *found = (kept_hooks){{wrap}, aids, all_kept};
            all_kept = found;
        }
    }
    pthread_mutex_unlock(&keeping);
    return found ? &found->hooks : &refusing;
}

gml_aids
gml_aids_of(const gml_lake_hooks *hooks)
{
    return hooks ? ((const kept_hooks *)hooks)->aids : (gml_aids){0};
}
