/* The counters behind check.h. Checks may come from several threads. */
#include "support/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int failed_checks;
static check_test *first_test, **end_of_tests = &first_test;
static int passed_tests;
static int failed_tests;

void check_enter(check_test *test) {
    *end_of_tests = test;
    end_of_tests = &test->next;
}

const check_test *check_tests(void) {
    return first_test;
}

int check_all(void) {
    for (const check_test *test = first_test; test; test = test->next) {
        check_run(test->name, test->run);
    }
    return report();
}

/* A test that runs on several drivers or policies has theirs before its name. */
static bool is_wanted(const char *name) {
    const char *only = getenv("GMLAKE_TEST_ONLY");
    if (!only) {
        return true;
    }
    size_t length = strlen(name), wanted = strlen(only);
    const char *end = length >= wanted ? name + length - wanted : NULL;
    return end && strcmp(end, only) == 0 && (end == name || strchr(" /", end[-1]));
}

void check_run(const char *name, void (*test)(void)) {
    if (!is_wanted(name)) {
        return;
    }
    int before = atomic_load(&failed_checks);
    test();
    if (atomic_load(&failed_checks) != before) {
        failed_tests++;
        fprintf(stderr, "FAILED %s\n", name);
    } else {
        passed_tests++;
    }
}

static struct {
    const char *name;
    void (*test)(void);
} alone;

/* Runs that test in a child, whose exit status tells how it went. */
static void run_in_child(void) {
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int before = check_failures();
        check_run(alone.name, alone.test);
        _exit(check_failures() != before);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

void check_run_alone(const char *name, void (*test)(void)) {
    alone.name = name;
    alone.test = test;
    check_run(name, run_in_child);
}

int check_failures(void) {
    return atomic_load(&failed_checks);
}

bool check_true(bool holds, const char *what, const char *file, int line) {
    if (!holds) {
        atomic_fetch_add(&failed_checks, 1);
        fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    }
    return holds;
}

bool check_equal(uint64_t actual, uint64_t expected, const char *what, const char *file, int line) {
    if (actual != expected) {
        atomic_fetch_add(&failed_checks, 1);
        fprintf(stderr, "%s:%d: %s is %" PRIu64 ", expected %" PRIu64 "\n", file, line, what,
                actual, expected);
    }
    return actual == expected;
}

bool check_status(gml_status actual, gml_status expected, const char *what, const char *file,
                  int line) {
    if (actual != expected) {
        atomic_fetch_add(&failed_checks, 1);
        fprintf(stderr, "%s:%d: %s answered \"%s\", expected \"%s\"\n", file, line, what,
                gml_status_text(actual), gml_status_text(expected));
    }
    return actual == expected;
}

int report(void) {
    printf("%d passed, %d failed\n", passed_tests, failed_tests);
    return failed_tests ? 1 : 0;
}

int skip(const char *reason) {
    printf("skipped: %s\n", reason);
    return 77;
}

uint64_t check_next(check_random *random) {
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = random->state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

uint64_t check_below(check_random *random, uint64_t bound) {
    return check_next(random) % bound;
}
