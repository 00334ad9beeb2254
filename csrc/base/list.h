/* An intrusive circular list: a member knows its neighbours, a head is a member of its own list. */
#ifndef GML_BASE_LIST_H
#define GML_BASE_LIST_H

#include <stdbool.h>

typedef struct gml_link {
    struct gml_link *previous, *next;
} gml_link;

static inline void gml_list_init(gml_link *head) {
    head->previous = head;
    head->next = head;
}

static inline bool gml_list_is_empty(const gml_link *head) {
    return head->next == head;
}

static inline void gml_list_append(gml_link *head, gml_link *link) {
    link->previous = head->previous;
    link->next = head;
    head->previous->next = link;
    head->previous = link;
}

/* pre: `link` is in a list. */
static inline void gml_list_remove(gml_link *link) {
    link->previous->next = link->next;
    link->next->previous = link->previous;
}

#endif
