/* Shared between the two files of the model, and by nobody else. */
#ifndef GML_DRIVER_MODEL_INTERNAL_H
#define GML_DRIVER_MODEL_INTERNAL_H

#include "driver/model.h"

/* GML_MISUSE unless both are multiples of the granularity and the size is not 0. */
gml_status gml_model_check_aligned(gml_model *model, const char *call, gml_address address,
                                   uint64_t size_bytes);

/* The reservation or plain block that `address` lies in, or NULL. */
gml_range *gml_model_range_at(gml_model *model, gml_address address);

/* Ends physical memory that nobody can reach any more. */
void gml_model_drop_if_gone(gml_model *model, gml_physical *physical);

#endif
