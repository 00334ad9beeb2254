/* A trainer's steps, told to its lake, and plans of them. */
#ifndef GML_TEST_STEPPING_H
#define GML_TEST_STEPPING_H

#include "gmlake_plan.h"
#include "support/trainer.h"

/* One step. */
gml_step_report trainer_step(trainer *self);

/* A plan for the last step of the kind, made now; and added. */
gml_plan *trainer_plan(gml_lake *lake, uint64_t kind);
void trainer_add_plan(gml_lake *lake, uint64_t kind);

/* A plan served every request that it does not leave. */
void trainer_check_whole(const gml_step_report *report);

/* Steps until a plan serves one, whole. */
gml_step_report trainer_learn(trainer *self);

#endif
