/* How lakes below PyTorch are to be opened: checked, compared and kept. */
#ifndef GML_TORCH_SETTINGS_H
#define GML_TORCH_SETTINGS_H

#include "driver/driver.h"

enum { GML_DRIVER_NAME_BYTES = 32 };

/* GML_INVALID_ARGUMENT for names that no lake could be opened with; `text`, of GML_REASON_BYTES,
 * then says which. */
gml_status gml_settings_check(const gml_lake_config *config, char *text);

/* Whether both open the same lakes; their devices do not matter. */
bool gml_settings_are_same(const gml_lake_config *known, const gml_lake_config *config);

/* The settings and their names in one piece of memory, for free(); NULL without host memory. */
gml_setting *gml_settings_copy(const gml_lake_config *config);

#endif
