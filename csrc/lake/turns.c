/* Turns by number, and what the graphs of one keep from each other. */
#include "lake/turns.h"

#include <stdlib.h>

static gml_turn *find_turn(const gml_turns *turns, uint64_t number) {
    gml_link *link = turns->all.next;
    while (link != &turns->all && ((gml_turn *)link)->number != number) {
        link = link->next;
    }
    return link == &turns->all ? NULL : (gml_turn *)link;
}

gml_turn *gml_turn_join(gml_turns *turns, gml_driver *driver, uint64_t number) {
    gml_turn *joined = find_turn(turns, number);
    if (!joined) {
        joined = calloc(1, sizeof *joined);
        if (!joined) {
            (void)gml_driver_fail(driver, GML_NO_HOST_MEMORY,
                                  "the host has no memory for graphs that take turns");
            return NULL;
        }
        joined->number = number;
        joined->common.driver = driver;
        joined->common.held_bytes = &turns->held_bytes;
        gml_list_append(&turns->all, &joined->link);
    }
    joined->heap_count++;
    return joined;
}

static void forget(gml_turn *forgotten) {
    gml_list_remove(&forgotten->link);
    free(forgotten);
}

/* A turn whose memory the driver does not take back waits for a later trim. */
static void end_if_over(gml_turn *turn) {
    if (turn->heap_count == 0 && gml_common_trim(&turn->common) == GML_OK) {
        forget(turn);
    }
}

void gml_turn_leave(gml_turn *turn) {
    turn->heap_count--;
    end_if_over(turn);
}

static gml_status keep(void *context, gml_handle handle) {
    return gml_common_keep(context, handle);
}

gml_status gml_turn_settle(gml_policy *policy) {
    return policy->ops->live_chunks(policy, keep, policy->driver);
}

void gml_turns_trim(gml_turns *turns) {
    for (gml_link *link = turns->all.next, *next; link != &turns->all; link = next) {
        next = link->next;
        end_if_over((gml_turn *)link);
    }
}

void gml_turns_close(gml_turns *turns) {
    for (gml_link *link = turns->all.next, *next; link != &turns->all; link = next) {
        next = link->next;
        gml_turn *left = (gml_turn *)link;
        (void)gml_common_trim(&left->common);
        forget(left);
    }
}
