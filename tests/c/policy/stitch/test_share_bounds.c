/* Edges of sharing: handles that name no stream, limits that end with their stream, and what a
 * refused wait counts. Streams run by hand. */
#include "support/sharing.h"

enum { MAIN = 1, OTHER = 2, THIRD = 3 };

#define BLOCK (64 * MIB)

TEST(a_number_that_is_no_stream_is_neither_forgotten_nor_marked_external)
{
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address block = sharing_take(lake, BLOCK, MAIN);
    CHECK_OK(gml_lake_record_stream(lake, block, 0));
    sharing_work(lake, 0);
    uint64_t records = sharing_count(lake).records;
    CHECK_STATUS(gml_lake_release_stream(lake, UINT64_MAX), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_lake_mark_external_stream(lake, UINT64_MAX), GML_INVALID_ARGUMENT);
    CHECK_EQ(sharing_count(lake).records, records);
    sharing_give(lake, block);
    CHECK_EQ(sharing_count(lake).records, records + 1);
    sharing_run_all(lake);
    sharing_leave(lake, BLOCK, MAIN);
    sharing_finish(lake);
}

TEST(a_request_that_may_not_wait_is_refused_once_however_many_ranges_it_tries)
{
    enum { RANGES = 8 };
    gml_lake *lake = sharing_open_with("borrow_waits", 0, NULL, 0);
    gml_address freed[RANGES], between[RANGES];
    for (size_t i = 0; i < RANGES; i++) {
        freed[i] = sharing_take(lake, 4 * MIB, MAIN);
        between[i] = sharing_take(lake, 2 * MIB, MAIN);
    }
    for (size_t i = 0; i < RANGES; i++) {
        sharing_give(lake, freed[i]);
    }
    for (uint64_t request = 1; request <= 2; request++) {
        sharing_leave(lake, request * BLOCK, OTHER);
        CHECK_EQ(sharing_pair(lake, MAIN, OTHER).refused_waits, request);
    }
    for (size_t i = 0; i < RANGES; i++) {
        sharing_give(lake, between[i]);
    }
    sharing_finish(lake);
}
