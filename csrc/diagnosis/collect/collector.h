/* Records a program's driver calls. */
#ifndef GML_DIAGNOSE_COLLECT_COLLECTOR_H
#define GML_DIAGNOSE_COLLECT_COLLECTOR_H

#include "diagnosis/collect/cupti.h"
#include "diagnosis/collect/live_objects.h"
#include "diagnosis/collect/log.h"

#include <pthread.h>

enum { GML_MOST_FOUND = 512 };

/* A kernel or a graph that the program launches, as its parameters tell. */
typedef struct gml_launch {
    const char *name;
    uint32_t place;
    uint64_t stream;
    uint64_t repeats, repeated_as; /* see GML_LOG_KERNEL */
    size_t found_count;            /* or GML_SCAN_UNKNOWN */
    gml_live_object found[GML_MOST_FOUND];
} gml_launch;

typedef struct gml_collector {
    pthread_mutex_t lock; /* recursive; protects all that follows */
    bool is_busy;         /* the thread that holds the lock is at work, and may call again: from a
                             signal's handler, from a malloc of the program's own */
    gml_live live;
    gml_log log;
    cuda_param_info function_info, kernel_info; /* NULL: this driver does not have them */
    void (*expect)(const gml_launch *launch);   /* who takes launches down; NULL: calls.c itself */
} gml_collector;

#define GML_COLLECTOR_LOCK PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP

/* The driver functions that are listened to, by CUPTI's numbers; 0 past the last. */
uint32_t gml_collected_function(size_t index);

/* Takes down one call: CUPTI's callback for each of them. `user` is the gml_collector. */
void gml_collect_call(void *user, int domain, uint32_t function, const cupti_callback_data *data);

/* Takes the lock. False, without it: this thread is already inside, and its nested calls are not
 * recorded. */
bool gml_collector_enter(gml_collector *collector);
void gml_collector_leave(gml_collector *collector);

/* Writes a launch, and that it touches what its parameters point to. pre: the lock is held. */
void gml_collect_launch(gml_collector *collector, const gml_launch *launch);
void gml_collect_parameters(gml_collector *collector, const gml_launch *launch);

#define GML_SCAN_UNKNOWN SIZE_MAX

/* The objects that a launch's parameters point to, each once; returns how many, or GML_SCAN_UNKNOWN
 * if there are more than `capacity` or the driver does not describe the parameters. Every aligned
 * word of every parameter is looked up: a pointer in a structure is found, one that lies in device
 * memory is not, and a number may be taken for a pointer. pre: the lock is held. */
size_t gml_scan_parameters(const gml_collector *collector, void *function, void *const *parameters,
                           void *const *extra, gml_live_object *out, size_t capacity);

#endif
