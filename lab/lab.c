/* Registers the policies of lab/ in every program that is linked with it. */
#include "paper/paper.h"

__attribute__((constructor)) static void register_policies(void) {
    gml_policy_register(&gml_paper_policy);
}
