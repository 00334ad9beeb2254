/* What tests ask of policies, those of annexes among them. */
#ifndef GML_TEST_POLICIES_H
#define GML_TEST_POLICIES_H

#include "policy/policy.h"

/* Whether streams lend each other memory: `stitch`, and policies around it. */
bool policy_lends(const char *name);

/* The policies that do, in any order; NULL: there are no more. */
const char *lending_policy(size_t index);

/* Whether the policy knows of steps, and serves one that repeats as the one before. */
bool policy_has_steps(const char *name);

/* One that does; NULL where no annex brings one. */
const char *policy_with_steps(void);

#endif
