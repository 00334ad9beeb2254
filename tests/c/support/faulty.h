/* Policies that break one promise each, to show that the tests see it; and one that breaks none. */
#ifndef GML_TEST_FAULTY_H
#define GML_TEST_FAULTY_H

#include "policy/policy.h"

extern const gml_policy_ops faulty_none;     /* events order what streams hand to each other */
extern const gml_policy_ops faulty_order;    /* memory moves between streams without an event */
extern const gml_policy_ops faulty_overlap;  /* every 50th block is also given to the next */
extern const gml_policy_ops faulty_unmap;    /* unmaps at the free, whatever is pending */
extern const gml_policy_ops faulty_reserved; /* reserved_bytes forgets what was given back */

#endif
