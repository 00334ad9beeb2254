/* Checks that print both values and go on; the program's exit status tells whether any failed.
 *
 *     TEST(tree_keeps_order) { CHECK_EQ(count, 3); }
 *
 * A test runs because it is there, in the order of its file. A program with something to prepare
 * has a main of its own, which answers check_all().
 */
#ifndef GML_TEST_CHECK_H
#define GML_TEST_CHECK_H

#include "gmlake.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void enter_##name(void) {                                  \
        static check_test test = {#name, test_##name, NULL};                                       \
        check_enter(&test);                                                                        \
    }                                                                                              \
    static void test_##name(void)
#define RUN(name) check_run(#name, test_##name)

#define CHECK(condition) check_true((condition), #condition, __FILE__, __LINE__)
#define CHECK_EQ(actual, expected)                                                                 \
    check_equal((uint64_t)(actual), (uint64_t)(expected), #actual, __FILE__, __LINE__)
#define CHECK_STATUS(actual, expected)                                                             \
    check_status((actual), (expected), #actual, __FILE__, __LINE__)
#define CHECK_OK(actual) CHECK_STATUS(actual, GML_OK)

/* The sanitizers that the tests are built with, 0 or 1 each. */
#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define HAS_THREAD_SANITIZER 1
#else
#define HAS_THREAD_SANITIZER 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define HAS_ADDRESS_SANITIZER 1
#else
#define HAS_ADDRESS_SANITIZER 0
#endif
#define IS_SANITIZED (HAS_THREAD_SANITIZER || HAS_ADDRESS_SANITIZER)

typedef struct check_test {
    const char *name;
    void (*run)(void);
    struct check_test *next;
} check_test;

/* Called before main, by TEST. */
void check_enter(check_test *test);

/* Those of this program, by `next`. */
const check_test *check_tests(void);

/* Runs them all; the exit status of main. */
int check_all(void);

/* Runs one test and prints its name if a check in it failed. GMLAKE_TEST_ONLY in the environment
 * names one test: the others are passed over. */
void check_run(const char *name, void (*test)(void));

/* The same in a process of its own, which begins as this one is now: for what lives as long as its
 * process does. */
void check_run_alone(const char *name, void (*test)(void));

/* How many checks have failed so far. */
int check_failures(void);

/* Each returns whether the check held. */
bool check_true(bool holds, const char *what, const char *file, int line);
bool check_equal(uint64_t actual, uint64_t expected, const char *what, const char *file, int line);
bool check_status(gml_status actual, gml_status expected, const char *what, const char *file,
                  int line);

/* Prints "N passed, M failed" over the tests run; the exit status of main. */
int report(void);

/* Says why and returns the exit status that ctest counts as skipped. */
int skip(const char *reason);

/* A seeded generator (splitmix64), so that a failure can be repeated. */
typedef struct check_random {
    uint64_t state;
} check_random;

uint64_t check_next(check_random *random);
uint64_t check_below(check_random *random, uint64_t bound); /* bound > 0 */

#endif
