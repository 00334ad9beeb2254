/* A driver around another one: it forwards every call except those that the wrapper replaces in its
 * own table. */
#ifndef GML_DRIVER_WRAPPED_H
#define GML_DRIVER_WRAPPED_H

#include "driver/driver.h"

typedef struct gml_wrapped {
    gml_driver base;    /* must be first */
    gml_driver_ops ops; /* this driver's table: without what the inner one lacks */
    gml_driver *inner;
} gml_wrapped;

/* Sets up a zeroed wrapper that passes everything on; `destroy`, which must close the inner driver,
 * is its caller's. */
void gml_wrap(gml_wrapped *wrapped, gml_driver *inner, void (*destroy)(gml_driver *self));

static inline gml_driver *gml_wrapped_inner(gml_driver *self) {
    return ((gml_wrapped *)(void *)self)->inner;
}

/* Passes a status of the inner driver on, with its reason. */
gml_status gml_wrapped_relay(gml_driver *self, gml_status status);

#endif
