/* A number per thread: no lock, since nobody else sees it. */
#include "lake/site.h"

#include "gmlake.h"

_Thread_local uint64_t gml_thread_site;

void
gml_set_site(uint64_t site)
{
    gml_thread_site = site;
}

uint64_t
gml_site(void)
{
    return gml_thread_site;
}
