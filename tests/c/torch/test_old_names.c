/* Names of the last release, in C: they still compile, and mean what the new ones do. */
#include "gmlake_friends.h"
#include "gmlake_torch.h"
#include "support/check.h"

TEST(old_names_are_the_new_ones) {
    const gml_region_info span = {.kind = GML_REGION_HOME};
    CHECK(gml_region_kind_name(span.kind) == gml_span_kind_name(GML_SPAN_BASE));
    CHECK_EQ(GML_REGION_SEGMENT, GML_SPAN_SEGMENT);
    CHECK_EQ(GML_REGION_VIEW, GML_SPAN_VIEW);
    gml_region_kind kind = GML_REGION_VIEW;
    CHECK_EQ(kind, GML_SPAN_VIEW);
    CHECK(gml_friend_open == gml_interop_open);
    CHECK(gml_friend_open_serving == gml_interop_open_serving);
    CHECK(gml_friend_alloc == gml_interop_alloc);
    CHECK(gml_friend_free == gml_interop_free);
    CHECK(gml_friend_wait_stream == gml_interop_wait_stream);
    CHECK(gml_friend_wait_device == gml_interop_wait_device);
}
