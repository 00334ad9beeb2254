/* The number under which histories note what the calling thread does. */
#ifndef GML_LAKE_SITE_H
#define GML_LAKE_SITE_H

#include <stdint.h>

/* See gml_set_site(). Read where it is noted, under whatever lock. */
extern _Thread_local uint64_t gml_thread_site;

#endif
