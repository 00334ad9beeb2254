/* What a walk tells of views: kinds, and where their bytes lie in the base range. */
#include "support/check.h"
#include "support/policies.h"
#include "support/trainer.h"

#include <string.h>

/* ---- callers without an interest ------------------------------------------------------------- */

TEST(every_kind_has_a_name) {
    for (int kind = 0; kind < GML_SPAN_KIND_COUNT; kind++) {
        CHECK(strcmp(gml_span_kind_name((gml_span_kind)kind), "unknown kind") != 0);
    }
    CHECK(strcmp(gml_span_kind_name(GML_SPAN_KIND_COUNT), "unknown kind") == 0);
}
