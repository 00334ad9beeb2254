/* A lake whose requests are served by its policy and by PyTorch's algorithm inside it, in turns. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/census.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static gml_server
draw_server(check_random *random)
{
    return check_below(random, 2) ? GML_SERVER_CACHING : GML_SERVER_POLICY;
}

static bool
is_caching_anyway(void)
{
    return strcmp(contract_policy, "caching") == 0;
}

/* The models of PyTorch and of GMLake serve whoever has the handle, as these do. */
static bool
knows_that_streams_end(void)
{
    return strcmp(contract_policy, "stitch") == 0 || strcmp(contract_policy, "plan") == 0;
}

/* ---- both at once ---------------------------------------------------------------------------- */

enum { MOST_LIVE = 60 };

/* Takes, gives and switches servers at random; returns how many blocks live. */
static size_t
mix(gml_lake *lake, live_block *blocks, size_t steps, uint64_t seed)
{
    check_random random = {seed};
    size_t count = 0;
    for (size_t step = 0; step < steps; step++) {
        uint64_t choice = check_below(&random, 100);
        if (choice < 8) {
            CHECK_OK(gml_lake_serve_with(lake, draw_server(&random)));
        } else if (choice < 60 && count < MOST_LIVE) {
            live_block *block = &blocks[count++];
            block->size_bytes = lake_draw_size(&random);
            block->stream = check_below(&random, 3);
            block->seed = check_next(&random);
            block->address = lake_take(lake, block->size_bytes, block->stream);
            lake_fill(lake, block);
        } else if (choice == 99) {
            CHECK_OK(gml_lake_trim(lake, NULL));
        } else if (choice >= 97 &&
                   knows_that_streams_end()) { /* its handle comes back as another stream's */
            CHECK_OK(gml_lake_forget_stream(lake, 1 + check_below(&random, 2)));
        } else if (count) {
            live_block *block = &blocks[check_below(&random, count)];
            lake_check_filled(lake, block);
            lake_give(lake, block->address);
            *block = blocks[--count];
        }
        if (step % 16 == 0) {
            CHECK_OK(gml_lake_check(lake));
        }
    }
    return count;
}

TEST(both_serve_side_by_side)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        gml_lake *lake = lake_open(0);
        live_block blocks[MOST_LIVE];
        size_t count = mix(lake, blocks, 600, seed);
        lake_check_disjoint(blocks, count);
        lake_drain(lake, blocks, count);
        lake_finish(lake);
    }
}

TEST(a_block_outlives_a_switch_of_servers)
{
    gml_lake *lake = lake_open(0);
    live_block of_policy = {lake_take(lake, 3 * MIB, 0), 3 * MIB, 1, 0};
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    live_block of_guest = {lake_take(lake, 5 * MIB, 0), 5 * MIB, 2, 0};
    lake_fill(lake, &of_policy);
    lake_fill(lake, &of_guest);
    lake_give(lake, of_policy.address);
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_POLICY));
    live_block again = {lake_take(lake, 3 * MIB, 0), 3 * MIB, 3, 0};
    lake_fill(lake, &again);
    lake_check_filled(lake, &of_guest);
    gml_block_info info;
    CHECK_OK(gml_lake_block(lake, of_guest.address, &info));
    CHECK_EQ(info.requested_bytes, 5 * MIB);
    lake_give(lake, of_guest.address);
    CHECK_STATUS(gml_lake_free(lake, of_guest.address), GML_UNKNOWN_ADDRESS);
    lake_check_filled(lake, &again);
    lake_give(lake, again.address);
    lake_finish(lake);
}

TEST(live_blocks_of_both_go_when_the_lake_closes)
{
    gml_lake *lake = lake_open(0);
    live_block blocks[MOST_LIVE];
    CHECK(mix(lake, blocks, 200, 9) > 0);
    CHECK_OK(gml_lake_close(lake));
}

/* ---- memory between the two ------------------------------------------------------------------ */

/* Memory of 60 MiB, on stream 0, that the guest holds and nobody uses. */
static void
leave_guest_idle(gml_lake *lake)
{
    gml_address taken[3];
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    for (size_t i = 0; i < 3; i++) {
        taken[i] = lake_take(lake, 20 * MIB, 0);
    }
    for (size_t i = 0; i < 3; i++) {
        lake_give(lake, taken[i]);
    }
}

TEST(the_policy_gets_what_the_guest_holds_idle)
{
    for (gml_stream stream = 0; stream < 2; stream++) {
        gml_lake *lake = lake_open(64 * MIB);
        leave_guest_idle(lake);
        gml_stats before = lake_stats_of(lake);
        CHECK_EQ(before.reserved_bytes, 60 * MIB);
        CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_POLICY));
        live_block block = {lake_take(lake, 56 * MIB, stream), 56 * MIB, 5, stream};
        lake_fill(lake, &block);
        lake_check_filled(lake, &block);
        gml_stats after = lake_stats_of(lake);
        CHECK(after.reserved_bytes <= 64 * MIB);
        if (strcmp(contract_policy, "stitch") == 0) {
            CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
            CHECK_EQ(after.driver_calls[GML_CALL_CREATE], before.driver_calls[GML_CALL_CREATE]);
            CHECK_EQ(after.driver_calls[GML_CALL_RELEASE], 0);
        }
        CHECK_OK(gml_lake_check(lake));
        lake_give(lake, block.address);
        lake_finish(lake);
    }
}

TEST(the_guest_gets_what_the_policy_holds_idle)
{
    gml_lake *lake = lake_open(64 * MIB);
    gml_address taken[3];
    for (size_t i = 0; i < 3; i++) {
        taken[i] = lake_take(lake, 20 * MIB, 0);
    }
    for (size_t i = 0; i < 3; i++) {
        lake_give(lake, taken[i]);
    }
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    gml_address address = lake_take(lake, 56 * MIB, 1);
    CHECK(lake_stats_of(lake).reserved_bytes <= 64 * MIB);
    lake_give(lake, address);
    lake_finish(lake);
}

TEST(what_is_free_can_be_had_from_the_guest)
{
    gml_lake *lake = lake_open(256 * MIB);
    live_block blocks[MOST_LIVE];
    size_t count = mix(lake, blocks, 150, 12);
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    gml_stats before = lake_stats_of(lake);
    if (before.largest_free_bytes) {
        gml_address address = lake_take(lake, before.largest_free_bytes, 0);
        CHECK_EQ(lake_stats_of(lake).reserved_bytes, before.reserved_bytes);
        lake_give(lake, address);
    }
    lake_drain(lake, blocks, count);
    lake_finish(lake);
}

TEST(a_refusal_of_the_guest_says_why)
{
    gml_lake *lake = lake_open(64 * MIB);
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    gml_address kept = lake_take(lake, 20 * MIB, 0);
    gml_address address = 0;
    CHECK_STATUS(gml_lake_allocate(lake, 60 * MIB, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_EQ(address, 0);
    char reason[256] = "";
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "60.0 MiB asked for") != NULL);
    CHECK_EQ(lake_stats_of(lake).states[GML_STATE_OOM], 1);
    lake_give(lake, kept);
    lake_finish(lake);
}

/* ---- where the guest places ------------------------------------------------------------------ */

typedef struct search {
    gml_address wanted;
    gml_address start; /* of the region that holds it; 0: none */
} search;

static void
match_region(void *context, const gml_region_info *region)
{
    search *looked = context;
    if (looked->wanted - region->address < region->size_bytes) {
        looked->start = region->address;
    }
}

static void
ignore_range(void *context, const gml_range_info *range)
{
    (void)context;
    (void)range;
}

/* Where in its segment a block of a caching policy begins. */
static uint64_t
offset_in_segment(gml_policy *policy, gml_address address)
{
    search looked = {.wanted = address};
    policy->ops->visit(policy, &(gml_visitor){&looked, match_region, ignore_range, NULL});
    CHECK(looked.start != 0);
    return address - looked.start;
}

/* On `sim`, where later segments have higher addresses: free blocks of one size are taken by
 * address.
 */
TEST(the_guest_places_as_caching_does)
{
    if (lake_is_host()) {
        return;
    }
    gml_lake *lake = lake_open(0);
    gml_lake_config config = lake_config_of(0);
    config.policy = "caching";
    gml_lake *plain = NULL;
    CHECK_OK(gml_lake_open(&config, &plain, NULL, 0));
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    gml_policy *guest = lake->guest ? gml_guest_policy(lake->guest) : lake->policy;
    check_random random = {31};
    gml_address ours[MOST_LIVE], theirs[MOST_LIVE];
    size_t count = 0;
    for (size_t step = 0; step < 500; step++) {
        if (count < MOST_LIVE && check_below(&random, 5) > 1) {
            uint64_t size_bytes = lake_draw_size(&random);
            ours[count] = lake_take(lake, size_bytes, 0);
            theirs[count] = lake_take(plain, size_bytes, 0);
            gml_block_info our_info, their_info;
            CHECK_OK(gml_lake_block(lake, ours[count], &our_info));
            CHECK_OK(gml_lake_block(plain, theirs[count], &their_info));
            CHECK_EQ(our_info.block_bytes, their_info.block_bytes);
            CHECK_EQ(our_info.state, their_info.state);
            CHECK_EQ(offset_in_segment(guest, ours[count]),
                     offset_in_segment(plain->policy, theirs[count]));
            count++;
        } else if (count) {
            size_t pick = check_below(&random, count);
            lake_give(lake, ours[pick]);
            lake_give(plain, theirs[pick]);
            count--;
            ours[pick] = ours[count];
            theirs[pick] = theirs[count];
        }
        CHECK_EQ(guest->reserved_bytes, plain->policy->reserved_bytes);
    }
    CHECK_OK(gml_lake_close(plain));
    CHECK_OK(gml_lake_close(lake));
}

/* ---- failing calls --------------------------------------------------------------------------- */

static bool
may_answer(gml_status status)
{
    return status == GML_OK || status == GML_OUT_OF_MEMORY || status == GML_DRIVER_FAILED;
}

static void
take_if_possible(gml_lake *lake, check_random *random, live_block *blocks, size_t *count)
{
    live_block block = {0, lake_draw_size(random), check_next(random), check_below(random, 2)};
    gml_status status = gml_lake_allocate(lake, block.size_bytes, block.stream, &block.address);
    CHECK(may_answer(status));
    if (status == GML_OK) {
        lake_fill(lake, &block);
        blocks[(*count)++] = block;
    }
}

/* A program under failures. Returns the driver calls made, 0 if the lake did not open. */
static uint64_t
run_failing(uint64_t fail_call, uint64_t per_million, size_t steps)
{
    gml_lake_config config = lake_config_of(160 * MIB);
    config.aids.fail_call = fail_call;
    config.aids.fail_per_million = per_million;
    config.aids.fail_seed = fail_call;
    gml_lake *lake = NULL;
    if (gml_lake_open(&config, &lake, NULL, 0) != GML_OK) {
        return 0;
    }
    check_random random = {17 + fail_call % 5};
    live_block blocks[MOST_LIVE];
    size_t count = 0;
    for (size_t step = 0; step < steps; step++) {
        uint64_t choice = check_below(&random, 100);
        if (choice < 15) {
            CHECK_OK(gml_lake_serve_with(lake, draw_server(&random)));
        } else if (choice < 65 && count < MOST_LIVE) {
            take_if_possible(lake, &random, blocks, &count);
        } else if (choice < 70) {
            CHECK(may_answer(gml_lake_trim(lake, NULL)));
        } else if (count) {
            live_block *block = &blocks[check_below(&random, count)];
            lake_check_filled(lake, block);
            lake_give(lake, block->address);
            *block = blocks[--count];
        }
        if (!CHECK_OK(gml_lake_check(lake))) {
            char reason[256];
            gml_lake_reason(lake, reason, sizeof reason);
            fprintf(stderr, "    call %" PRIu64 ": %s\n", fail_call, reason);
            break;
        }
    }
    lake_drain(lake, blocks, count);
    for (int i = 0; i < 50 && lake_stats_of(lake).reserved_bytes; i++) {
        (void)gml_lake_trim(lake, NULL);
    }
    gml_stats stats = lake_stats_of(lake);
    CHECK_EQ(stats.reserved_bytes, 0);
    CHECK_EQ(stats.live_blocks, 0);
    (void)gml_lake_close(lake);
    uint64_t calls = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        calls += stats.driver_calls[i];
    }
    return calls;
}

TEST(any_driver_call_may_fail_while_both_serve)
{
    uint64_t calls = run_failing(1000000, 0, 60);
    uint64_t stride = lake_is_host() ? 23 : 7;
    for (uint64_t nth = 1; nth <= calls; nth += stride) {
        (void)run_failing(nth, 0, 60);
    }
}

TEST(many_driver_calls_may_fail_while_both_serve)
{
    for (uint64_t seed = 1; seed <= (lake_is_host() ? 5 : 30); seed++) {
        (void)run_failing(1000000 + seed, 20000, 200);
    }
}

/* ---- what others see ------------------------------------------------------------------------- */

static void
check_rows(const gml_stat row[GML_POOL_COUNT])
{
    CHECK_EQ(row[GML_POOL_ALL].current, row[GML_POOL_SMALL].current + row[GML_POOL_LARGE].current);
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        CHECK_EQ(row[pool].current, row[pool].allocated - row[pool].freed);
        CHECK(row[pool].peak >= row[pool].current);
    }
}

static void
check_torch_stats(gml_lake *lake)
{
    gml_torch_stats torch;
    gml_stats stats = lake_stats_of(lake);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    check_rows(torch.allocation);
    check_rows(torch.allocated_bytes);
    check_rows(torch.active);
    check_rows(torch.active_bytes);
    check_rows(torch.requested_bytes);
    check_rows(torch.reserved_bytes);
    check_rows(torch.inactive_split_bytes);
    check_rows(torch.segment);
    CHECK_EQ(torch.allocation[0].current, stats.live_blocks);
    CHECK_EQ(torch.requested_bytes[0].current, stats.requested_bytes);
    CHECK_EQ(torch.reserved_bytes[0].current, stats.reserved_bytes);
    CHECK_EQ(torch.active[0].allocated, stats.allocations);
    CHECK(torch.allocated_bytes[0].current >= stats.live_bytes);
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        CHECK(torch.active_bytes[pool].current <= torch.reserved_bytes[pool].current);
        if (lake->guest || !lake->policy->ops->torch_stats) {
            CHECK_EQ(torch.inactive_split_bytes[pool].current,
                     torch.reserved_bytes[pool].current - torch.active_bytes[pool].current);
        }
    }
    CHECK_EQ(torch.max_split_size, -1);
}

TEST(torch_stats_add_up_whoever_serves)
{
    gml_lake *lake = lake_open(0);
    check_random random = {41};
    live_block blocks[MOST_LIVE];
    size_t count = 0;
    for (size_t step = 0; step < 400; step++) {
        uint64_t choice = check_below(&random, 100);
        if (choice < 5) {
            CHECK_OK(gml_lake_serve_with(lake, draw_server(&random)));
        } else if (choice < 60 && count < MOST_LIVE) {
            uint64_t size_bytes = lake_draw_size(&random);
            blocks[count++] = (live_block){lake_take(lake, size_bytes, 0), size_bytes, 0, 0};
        } else if (choice == 98) {
            CHECK_OK(gml_lake_trim(lake, NULL));
        } else if (choice == 99) {
            CHECK_OK(gml_lake_reset_peaks(lake));
        } else if (count) {
            size_t pick = check_below(&random, count);
            lake_give(lake, blocks[pick].address);
            blocks[pick] = blocks[--count];
        }
        check_torch_stats(lake);
    }
    for (size_t i = 0; i < count; i++) {
        lake_give(lake, blocks[i].address);
    }
    lake_finish(lake);
}

TEST(a_block_in_use_elsewhere_is_active_and_not_allocated)
{
    gml_lake *lake = lake_open(0);
    gml_torch_stats torch;
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    if (is_caching_anyway()) { /* whose own count of PyTorch's events is another test's */
        CHECK_OK(gml_lake_close(lake));
        return;
    }
    gml_address first = lake_take(lake, 2 * MIB, 0);
    CHECK_OK(gml_lake_record_stream(lake, first, 7));
    lake_give(lake, first);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.allocation[0].current, 0);
    CHECK_EQ(torch.active[0].current, 1);
    CHECK_EQ(torch.active_bytes[0].current, 2 * MIB);
    CHECK_EQ(torch.active[0].freed, 0);
    CHECK_EQ(lake_stats_of(lake).live_blocks, 1);
    CHECK_OK(gml_lake_check(lake));
    gml_address second = lake_take(lake, 2 * MIB, 0);
    CHECK(second != first);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.allocation[0].peak, 1);
    CHECK_EQ(torch.active[0].peak, 2);
    CHECK_EQ(torch.active_bytes[0].peak, 4 * MIB);
    CHECK_OK(gml_lake_trim(lake, NULL)); /* waits for the stream */
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.active[0].current, 1);
    CHECK_EQ(torch.active_bytes[0].current, 2 * MIB);
    CHECK_EQ(torch.active[0].peak, 2);
    CHECK_OK(gml_lake_reset_peaks(lake));
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.active[0].peak, 1);
    CHECK_EQ(torch.active_bytes[0].peak, 2 * MIB);
    lake_give(lake, second);
    lake_finish(lake);
}

/* Blocks that streams still use are waited for before a request is refused, whoever serves. */
TEST(a_request_waits_for_blocks_in_use_elsewhere)
{
    for (int server = 0; server < 2; server++) {
        gml_lake *lake = lake_open(64 * MIB);
        CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
        CHECK_OK(gml_lake_serve_with(lake, (gml_server)server));
        gml_address first = lake_take(lake, 40 * MIB, 0);
        CHECK_OK(gml_lake_record_stream(lake, first, 7));
        lake_give(lake, first);
        CHECK_EQ(lake_stats_of(lake).live_blocks, 1);
        gml_address second = lake_take(lake, 40 * MIB, 0);
        CHECK_EQ(lake_stats_of(lake).live_blocks, 1);
        lake_give(lake, second);
        lake_finish(lake);
    }
}

enum { ENDED = 7, SEGMENT_BYTES = 12 * 1024 * 1024 };

/* Has the guest serve a stream that ends, and a new one that gets its handle and whose work is
 * still queued when it frees; then the policy serves. */
static gml_lake *
open_with_handle_that_came_back(bool keeps_one)
{
    gml_lake *lake = lake_open(64 * MIB);
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    gml_address kept = lake_take(lake, 2 * MIB, ENDED);
    gml_address before = lake_take(lake, SEGMENT_BYTES, ENDED);
    lake_give(lake, before);
    if (!keeps_one) {
        lake_give(lake, kept);
    }
    CHECK_OK(gml_lake_forget_stream(lake, ENDED));
    CHECK_OK(gml_streams_synchronize_all(gml_driver_streams(lake->driver)));
    gml_address large = lake_take(lake, SEGMENT_BYTES, ENDED);
    gml_address medium = lake_take(lake, 2 * MIB, ENDED);
    lake_give(lake, large);
    lake_give(lake, medium);
    if (keeps_one) {
        lake_give(lake, kept);
    }
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_POLICY));
    return lake;
}

/* Whoever gets the memory then comes after that work: the driver that checks the order of streams
 * would say so. */
TEST(memory_of_a_handle_that_came_back_is_waited_for)
{
    for (int keeps_one = 0; keeps_one < 2 && knows_that_streams_end(); keeps_one++) {
        gml_lake *lake = open_with_handle_that_came_back(keeps_one);
        gml_address all = lake_take(lake, 56 * MIB, 0);
        lake_give(lake, all);
        lake_finish(lake);
        lake = open_with_handle_that_came_back(keeps_one);
        CHECK_OK(gml_lake_trim(lake, NULL));
        lake_finish(lake);
    }
}

/* Streams that come and go leave nothing with the guest. */
TEST(streams_that_end_leave_nothing_behind)
{
    gml_lake *lake = lake_open(UINT64_C(16) << 30);
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    for (gml_stream stream = 1; stream <= 500; stream++) {
        gml_address first = lake_take(lake, 3 * MIB, stream), second = lake_take(lake, 512, stream);
        lake_give(lake, first);
        CHECK_OK(gml_lake_forget_stream(lake, stream));
        lake_give(lake, second);
    }
    CHECK(!knows_that_streams_end() || lake_stats_of(lake).reserved_bytes <= 512 * MIB);
    CHECK_OK(gml_lake_check(lake));
    lake_finish(lake);
}

TEST(a_visit_sees_the_blocks_of_both)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        gml_lake *lake = lake_open(0);
        live_block blocks[MOST_LIVE];
        size_t count = mix(lake, blocks, 300, 50 + seed);
        census seen = census_of(lake);
        gml_stats stats = lake_stats_of(lake);
        CHECK_EQ(seen.requests, stats.live_blocks);
        CHECK_EQ(seen.requested_bytes, stats.requested_bytes);
        CHECK_EQ(seen.physical_bytes, stats.reserved_bytes);
        lake_drain(lake, blocks, count);
        lake_finish(lake);
    }
}
int
main(void)
{
    return contract_main();
}
