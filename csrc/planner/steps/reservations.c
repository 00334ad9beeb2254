/* The reservations of all streams. */
#include "base/status.h"
#include "planner/steps/planned.h"

gml_status gml_planned_yield(gml_planned *planned) {
    gml_status status = GML_OK;
    for (gml_reservation *reservation = planned->reservations; reservation;
         reservation = reservation->next) {
        status = gml_first_failure(status, gml_reservation_yield(reservation));
    }
    return status;
}

/* Without blocks there is nothing to claim, so yielding needs no host memory. */
void gml_planned_end_blocks(gml_planned *planned) {
    for (gml_reservation *reservation = planned->reservations; reservation;
         reservation = reservation->next) {
        while (!gml_list_is_empty(&reservation->live)) {
            gml_reservation_give(reservation, gml_placement_of_live(reservation->live.next));
        }
        reservation->cached = NULL;
    }
    (void)gml_planned_yield(planned);
}

gml_reservation *gml_planned_reservation(gml_planned *planned, gml_stream stream) {
    gml_reservation *reservation = planned->reservations;
    gml_stream_cache *cache;
    while (reservation && reservation->cache->stream != stream) {
        reservation = reservation->next;
    }
    if (reservation || gml_stream_cache_find(planned->stitch, stream, &cache) != GML_OK) {
        return reservation;
    }
    reservation = gml_reservation_open(planned->stitch, cache);
    if (reservation) {
        reservation->next = planned->reservations;
        planned->reservations = reservation;
    }
    return reservation;
}

void gml_planned_close_holds(gml_planned *planned) {
    for (gml_reservation *reservation = planned->reservations, *next; reservation;
         reservation = next) {
        next = reservation->next;
        gml_reservation_close(reservation);
    }
    planned->reservations = NULL;
}
