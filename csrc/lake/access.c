/* Access to a lake's parts for the layers above, under its lock. */
#include "lake/lake.h"

#include <stdarg.h>

/* ---- the policy ------------------------------------------------------------------------------ */

gml_status gml_lake_with_policy(gml_lake *lake, gml_policy_action action, void *context) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = action(lake->policy, context);
    gml_lake_note_reserved(lake);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

static gml_status mark(gml_policy *policy, void *context) {
    (void)context;
    return policy->ops->mark ? policy->ops->mark(policy) : GML_OK;
}

gml_status gml_lake_mark(gml_lake *lake) {
    return gml_lake_with_policy(lake, mark, NULL);
}

/* ---- the driver ------------------------------------------------------------------------------ */

uint64_t gml_lake_total_bytes(const gml_lake *lake) {
    return lake->driver->info.total_bytes;
}

gml_status gml_lake_fail(gml_lake *lake, gml_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lake->lock);
    (void)gml_driver_vfail(lake->driver, status, format, arguments);
    pthread_mutex_unlock(&lake->lock);
    va_end(arguments);
    return status;
}

gml_status gml_lake_wait(gml_lake *lake, const gml_stream *stream) {
    gml_driver *driver = lake->driver;
    gml_status status;
    pthread_mutex_lock(&lake->lock);
    if (gml_driver_is_frozen(driver)) {
        status =
            gml_driver_fail(driver, GML_NOT_READY,
                            "a graph is captured, and nothing can be waited for until its end");
    } else {
        status = stream ? gml_driver_stream_synchronize(driver, *stream)
                        : gml_driver_device_synchronize(driver);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}
