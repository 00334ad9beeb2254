#include "support/census.h"

#include "support/check.h"

static void close_span(const census *seen) {
    if (seen->is_open) {
        CHECK_EQ(seen->next, seen->span.address + seen->span.size_bytes);
        CHECK_EQ(seen->used_bytes, seen->span.used_bytes);
    }
}

static void see_span(void *context, const gml_span_info *span) {
    census *seen = context;
    close_span(seen);
    seen->is_open = true;
    seen->span = *span;
    seen->next = span->address;
    seen->used_bytes = 0;
    seen->physical_bytes += span->is_view ? 0 : span->size_bytes;
}

static void see_range(void *context, const gml_range_info *range) {
    census *seen = context;
    CHECK_EQ(range->address, seen->next);
    CHECK(range->size_bytes > 0 && (range->is_used || !range->requested_bytes));
    seen->next += range->size_bytes;
    seen->used_bytes += range->is_used ? range->size_bytes : 0;
    seen->requested_bytes += range->requested_bytes;
    seen->requests += range->requested_bytes != 0;
}

census census_of(gml_lake *lake) {
    census seen = {0};
    CHECK_OK(gml_lake_visit(lake, &(gml_visitor){&seen, see_span, see_range, NULL, NULL}));
    close_span(&seen);
    return seen;
}
