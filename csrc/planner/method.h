/* The ways to place an instance, by number. Users see their names only, so that a method may come
 * or go. The numbers stand in plan files: a new one comes last, any other change is another version
 * of the format. */
#ifndef GML_PLANNER_METHOD_H
#define GML_PLANNER_METHOD_H

typedef enum gml_method {
    GML_METHOD_ONLINE_BEST_FIT = 0,
    GML_METHOD_FIRST_FIT_SIZE,    /* larger first, then earlier */
    GML_METHOD_LOWEST_CONTENTION, /* by the largest live sum in its life, then life */
    GML_METHOD_LOWEST_PEAK,       /* what lives at the peak, then by life (powers of 4) */
    GML_METHOD_EXACT,
    GML_METHOD_ORDERS, /* first fit in many orders, each a small change of the best */
    GML_METHOD_COUNT
} gml_method;

/* "online-best-fit", "first-fit-size", ...; never NULL. */
const char *gml_method_name(gml_method method);

/* The method of that name; GML_METHOD_COUNT: unknown. */
gml_method gml_method_named(const char *name);

#endif
