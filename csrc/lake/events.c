/* The public functions about what a lake notes. */
#include "lake/lake.h"

gml_status
gml_lake_keep_history(gml_lake *lake, size_t max_events)
{
    pthread_mutex_lock(&lake->lock);
    gml_lake_note_reserved(lake); /* what came before is not of the events to come */
    gml_status status = gml_history_keep(&lake->history, max_events);
    if (status == GML_OK) {
        gml_lake_begin_segments(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_note_mark(gml_lake *lake, uint64_t number)
{
    pthread_mutex_lock(&lake->lock);
    gml_history_add(&lake->history, GML_REQUEST_MARK, number, 0, 0, 0);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

gml_status
gml_lake_history(gml_lake *lake, gml_request *out, uint64_t *sites, size_t capacity, size_t *count,
                 uint64_t *total)
{
    pthread_mutex_lock(&lake->lock);
    *count = gml_history_copy(&lake->history, out, sites, capacity);
    *total = lake->history.total;
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}
