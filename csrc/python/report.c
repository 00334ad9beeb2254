/* Reports about a lake, as dicts and lists. Everything is copied out without the GIL first and
 * turned into Python objects afterwards. */
#include "base/room.h"
#include "core.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- counters -------------------------------------------------------------------------------- */

static const number_field stat_fields[] = {
#define FIELD(name) NUMBER_FIELD(gml_stats, name)
    FIELD(live_blocks),
    FIELD(peak_live_blocks),
    FIELD(requested_bytes),
    FIELD(live_bytes),
    FIELD(peak_requested_bytes),
    FIELD(peak_live_bytes),
    FIELD(reserved_bytes),
    FIELD(peak_reserved_bytes),
    FIELD(highest_live_bytes),
    FIELD(highest_reserved_bytes),
    FIELD(highest_shared_bytes),
    FIELD(host_bytes),
    FIELD(highest_host_bytes),
    FIELD(allocations),
    FIELD(frees),
    FIELD(views),
    FIELD(view_bytes),
    FIELD(largest_free_bytes),
    FIELD(cross_stream_waits),
    FIELD(borrowed_bytes),
    FIELD(deferred_free_bytes),
    FIELD(driver_time_ns),
#undef FIELD
    {NULL, 0},
};

typedef const char *(*name_of)(int number);

static const char *state_name(int state) {
    return gml_state_name((gml_state)state);
}

static const char *call_name(int call) {
    return gml_driver_call_name((gml_driver_call)call);
}

/* One number for each state, or for each kind of driver call. */
static PyObject *counts_dict(const uint64_t *numbers, int count, name_of name) {
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < count; i++) {
        if (put_number(dict, name(i), numbers[i]) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

PyObject *states_dict(const uint64_t states[GML_STATE_COUNT]) {
    return counts_dict(states, GML_STATE_COUNT, state_name);
}

PyObject *report_stats(const core_state *state, gml_lake *lake) {
    gml_stats stats;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_stats(lake, &stats);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        return raise_from_lake(state, status, lake);
    }
    PyObject *dict = fields_dict(&stats, stat_fields);
    if (dict && (put(dict, "states", states_dict(stats.states)) < 0 ||
                 put(dict, "driver_calls",
                     counts_dict(stats.driver_calls, GML_CALL_COUNT, call_name)) < 0 ||
                 put(dict, "driver_call_ns",
                     counts_dict(stats.driver_call_ns, GML_CALL_COUNT, call_name)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* ---- PyTorch's counters ---------------------------------------------------------------------- */

static const number_field pooled_fields[] = {
#define FIELD(name) NUMBER_FIELD(gml_torch_stats, name)
    FIELD(allocation),      FIELD(segment),        FIELD(active),       FIELD(inactive_split),
    FIELD(allocated_bytes), FIELD(reserved_bytes), FIELD(active_bytes), FIELD(inactive_split_bytes),
    FIELD(requested_bytes),
#undef FIELD
};

static int put_stat(PyObject *dict, const char *prefix, const char *pool, const gml_stat *stat) {
    const char *const names[] = {"current", "peak", "allocated", "freed"};
    const uint64_t values[] = {stat->current, stat->peak, stat->allocated, stat->freed};
    int failed = 0;
    for (size_t i = 0; !failed && i < sizeof names / sizeof *names; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s%s%s.%s", prefix, pool ? "." : "", pool ? pool : "", names[i]);
        failed = put_number(dict, key, values[i]);
    }
    return failed;
}

static int put_pooled(PyObject *dict, const gml_torch_stats *stats) {
    const char *const pools[GML_POOL_COUNT] = {"all", "small_pool", "large_pool"};
    int failed = 0;
    for (size_t i = 0; !failed && i < sizeof pooled_fields / sizeof *pooled_fields; i++) {
        const char *field = (const char *)stats + pooled_fields[i].offset;
        const gml_stat *pooled = (const gml_stat *)(const void *)field;
        for (size_t pool = 0; !failed && pool < GML_POOL_COUNT; pool++) {
            failed = put_stat(dict, pooled_fields[i].name, pools[pool], &pooled[pool]);
        }
    }
    return failed;
}

static const number_field single_fields[] = {
#define FIELD(name) NUMBER_FIELD(gml_torch_stats, name)
    FIELD(num_alloc_retries), FIELD(num_ooms),        FIELD(num_sync_all_streams),
    FIELD(num_device_alloc),  FIELD(num_device_free), {NULL, 0},
#undef FIELD
};

PyObject *report_torch_stats(const core_state *state, gml_lake *lake) {
    gml_torch_stats stats;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_torch_stats(lake, &stats);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        return raise_from_lake(state, status, lake);
    }
    PyObject *dict = fields_dict(&stats, single_fields);
    if (dict && (put_pooled(dict, &stats) < 0 ||
                 put_stat(dict, "oversize_allocations", NULL, &stats.oversize_allocations) < 0 ||
                 put_stat(dict, "oversize_segments", NULL, &stats.oversize_segments) < 0 ||
                 put(dict, "max_split_size", PyLong_FromLongLong(stats.max_split_size)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* ---- spans ----------------------------------------------------------------------------------- */

typedef enum row_kind { ROW_SPAN, ROW_RANGE, ROW_PIECE } row_kind;

/* One row of the copy: a span, or a range or piece of the span before it. */
typedef struct span_row {
    row_kind kind;
    gml_pool_id pool; /* of a span; (0, 0): no private pool */
    union {
        gml_span_info span;
        gml_range_info range;
        gml_piece_info piece;
    } is;
} span_row;

typedef struct span_copy {
    span_row *rows;
    size_t count, capacity;
    gml_pool_id pool; /* whose spans come now */
    bool failed;
} span_copy;

static void add_row(span_copy *copy, const span_row *row) {
    if (gml_make_room(&copy->rows, &copy->capacity, copy->count + 1, sizeof *copy->rows)) {
        copy->rows[copy->count++] = *row;
    } else {
        copy->failed = true;
    }
}

static void copy_span(void *context, const gml_span_info *span) {
    span_copy *copy = context;
    add_row(copy, &(span_row){.kind = ROW_SPAN, .pool = copy->pool, .is.span = *span});
}

static void begin_pool(void *context, gml_pool_id id) {
    ((span_copy *)context)->pool = id;
}

static void copy_range(void *context, const gml_range_info *range) {
    add_row(context, &(span_row){.kind = ROW_RANGE, .is.range = *range});
}

static void copy_piece(void *context, const gml_piece_info *piece) {
    add_row(context, &(span_row){.kind = ROW_PIECE, .is.piece = *piece});
}

static PyObject *span_dict(const span_row *row, PyObject *ranges, PyObject *pieces) {
    const gml_span_info *span = &row->is.span;
    return Py_BuildValue(
        "{sK sK sK sK sO sO s(KK) ss sO sO}", "address", (unsigned long long)span->address, "size",
        (unsigned long long)span->size_bytes, "used", (unsigned long long)span->used_bytes,
        "stream", (unsigned long long)span->stream, "is_small", span->is_small ? Py_True : Py_False,
        "is_view", span->is_view ? Py_True : Py_False, "pool", (unsigned long long)row->pool.first,
        (unsigned long long)row->pool.second, "kind", gml_span_kind_name(span->kind), "ranges",
        ranges, "pieces", pieces);
}

static PyObject *range_tuple(const gml_range_info *range) {
    return Py_BuildValue(
        "(KKKO)", (unsigned long long)range->address, (unsigned long long)range->size_bytes,
        (unsigned long long)range->requested_bytes, range->is_used ? Py_True : Py_False);
}

static PyObject *piece_tuple(const gml_piece_info *piece) {
    return Py_BuildValue("(KKK)", (unsigned long long)piece->address,
                         (unsigned long long)piece->base_address,
                         (unsigned long long)piece->size_bytes);
}

/* Adds one row to the list, of which the last span's lists are `ranges` and `pieces`, borrowed;
 * false with an exception. pre: the first row is a span. */
static bool append_row(PyObject *list, const span_row *row, PyObject **ranges, PyObject **pieces) {
    PyObject *to = row->kind == ROW_RANGE ? *ranges : row->kind == ROW_PIECE ? *pieces : list;
    PyObject *item = NULL;
    if (row->kind == ROW_RANGE) {
        item = range_tuple(&row->is.range);
    } else if (row->kind == ROW_PIECE) {
        item = piece_tuple(&row->is.piece);
    } else {
        *ranges = PyList_New(0);
        *pieces = PyList_New(0);
        item = *ranges && *pieces ? span_dict(row, *ranges, *pieces) : NULL;
        Py_XDECREF(*ranges); /* held by the dict, if that worked */
        Py_XDECREF(*pieces);
    }
    bool is_added = item && PyList_Append(to, item) == 0;
    Py_XDECREF(item);
    return is_added;
}

static PyObject *span_list(const span_copy *copy) {
    PyObject *list = PyList_New(0);
    PyObject *ranges = NULL, *pieces = NULL;
    for (size_t i = 0; list && i < copy->count; i++) {
        if (!append_row(list, &copy->rows[i], &ranges, &pieces)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *report_spans(const core_state *state, gml_lake *lake) {
    span_copy copy = {0};
    gml_visitor visitor = {.context = &copy,
                           .span = copy_span,
                           .range = copy_range,
                           .piece = copy_piece,
                           .pool = begin_pool};
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_visit(lake, &visitor);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (status != GML_OK) {
        (void)raise_from_lake(state, status, lake);
    } else if (copy.failed) {
        (void)raise_status(state, GML_NO_HOST_MEMORY, NULL);
    } else {
        result = span_list(&copy);
    }
    free(copy.rows);
    return result;
}
