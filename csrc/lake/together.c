/* Several lakes that sleep or wake together: all of them, or none. */
#include "lake/nap.h"

/* As it slept last, which its nap knows. */
static gml_status
sleep_again(const gml_sleeping *one, gml_sleep_report *out)
{
    pthread_mutex_lock(&one->lake->lock);
    gml_backup backup = one->lake->nap->backup;
    pthread_mutex_unlock(&one->lake->lock);
    return gml_lake_sleep(one->lake, backup, one->folder, out);
}

static gml_status
all_or_none(const gml_sleeping *each, size_t count, bool sleeps, gml_sleep_report *out,
            size_t *failed)
{
    gml_sleep_report sum = {0}, report = {0};
    for (size_t i = 0; i < count; i++) {
        const gml_sleeping *one = &each[i];
        gml_status status = sleeps ? gml_lake_sleep(one->lake, one->backup, one->folder, &report)
                                   : gml_lake_wake(one->lake, &report);
        if (status != GML_OK) {
            *failed = i;
            while (i-- > 0) {
                (void)(sleeps ? gml_lake_wake(each[i].lake, &report)
                              : sleep_again(&each[i], &report));
            }
            return status;
        }
        sum.released_bytes += report.released_bytes;
        sum.kept_bytes += report.kept_bytes;
        sum.saved_bytes += report.saved_bytes;
        sum.time_ns += report.time_ns;
    }
    *out = sum;
    return GML_OK;
}

gml_status
gml_lakes_sleep(const gml_sleeping *each, size_t count, gml_sleep_report *out, size_t *failed)
{
    return all_or_none(each, count, true, out, failed);
}

gml_status
gml_lakes_wake(const gml_sleeping *each, size_t count, gml_sleep_report *out, size_t *failed)
{
    return all_or_none(each, count, false, out, failed);
}
