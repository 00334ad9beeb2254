/* The independent check of fixes: object by object, and then the order of those that share memory.
 */
#include "diagnosis/check.h"
#include "diagnosis/check_book.h"

#include <stdlib.h>

static const uint64_t MOST_LOOKS = UINT64_C(1) << 30;

typedef struct entry_list {
    gml_check_entry *items;
    size_t count;
} entry_list;

static gml_status check_shape(const gml_object_trace *trace, const gml_diagnosis *diagnosis,
                              size_t place, const gml_check_book *to) {
    if (place >= diagnosis->finding_count) {
        return gml_refuse(GML_INVALID_ARGUMENT, to->reason, to->reason_bytes,
                          "there is no finding %zu", place);
    }
    const gml_finding *finding = &diagnosis->findings[place];
    bool is_reuse = finding->pattern == GML_PATTERN_REDUNDANT_ALLOCATION;
    bool is_whole =
        finding->pattern < GML_PATTERN_COUNT && finding->object < trace->object_count &&
        (is_reuse ? finding->other < trace->object_count && finding->other != finding->object
                  : true);
    return is_whole ? GML_OK : GML_CHECK_REFUSE(to, "finding %zu is not of this trace", place);
}

static void add_entries(entry_list *list, const gml_finding *finding) {
    if (finding->pattern == GML_PATTERN_NON_UNIFORM_FREQUENCY) {
        return; /* its fix moves no byte */
    }
    list->items[list->count++] = (gml_check_entry){finding->object, false, finding};
    if (finding->pattern == GML_PATTERN_REDUNDANT_ALLOCATION) {
        list->items[list->count++] = (gml_check_entry){finding->other, true, finding};
    }
}

static int compare_entries(const void *a, const void *b) {
    const gml_check_entry *left = a, *right = b;
    return (left->object > right->object) - (left->object < right->object);
}

/* pre: the findings are of this trace. */
static gml_status list_entries(entry_list *list, const gml_diagnosis *diagnosis,
                               const size_t *findings, size_t count) {
    *list = (entry_list){.items = malloc((2 * count + 1) * sizeof *list->items)};
    if (!list->items) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        add_entries(list, &diagnosis->findings[findings[i]]);
    }
    qsort(list->items, list->count, sizeof *list->items, compare_entries);
    return GML_OK;
}

static gml_status check_entries(const gml_check_book *book, const entry_list *list) {
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < list->count;) {
        size_t end = i;
        while (end < list->count && list->items[end].object == list->items[i].object) {
            end++;
        }
        status = gml_check_object(book, list->items + i, end - i);
        i = end;
    }
    return status == GML_OK ? gml_check_order(book, list->items, list->count) : status;
}

gml_status gml_diagnosis_check(const gml_object_trace *trace, const gml_diagnosis *diagnosis,
                               const size_t *findings, size_t count, char *reason,
                               size_t reason_bytes) {
    gml_check_book book = {.reason = reason, .reason_bytes = reason_bytes};
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        status = check_shape(trace, diagnosis, findings[i], &book);
    }
    if (status != GML_OK) {
        return status;
    }
    entry_list list;
    status = list_entries(&list, diagnosis, findings, count);
    if (status == GML_OK) {
        status = gml_check_book_open(&book, trace, diagnosis);
    }
    uint64_t looks = MOST_LOOKS;
    if (status == GML_OK) {
        book.reason = reason;
        book.reason_bytes = reason_bytes;
        book.looks = &looks;
        status = check_entries(&book, &list);
    }
    gml_check_book_close(&book);
    free(list.items);
    if (status == GML_UNSUPPORTED) {
        return gml_refuse(status, reason, reason_bytes, "too many separate runs to check each");
    }
    return status == GML_NO_HOST_MEMORY ? gml_refuse(status, reason, reason_bytes, "no host memory")
                                        : status;
}
