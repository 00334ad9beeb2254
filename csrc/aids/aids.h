/* What gml_aids asks for: a library of its own, which libgmlake goes without. */
#ifndef GML_AIDS_AIDS_H
#define GML_AIDS_AIDS_H

#include "gmlake.h"

/* gml_aids.wrap. Calls that are refused or skipped are not seen by what watches the order. */
gml_status gml_aids_wrap(const gml_aids *aids, gml_driver **driver, gml_watcher **watcher);

#endif
