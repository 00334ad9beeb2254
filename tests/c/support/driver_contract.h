/* One list of behaviour tests run over every backend of the driver table, and what such a test
 * needs.
 *
 *     TEST(map_wants_a_handle) { scene of = open_scene(); ... close_scene(&of); }
 *     int main(void) { return driver_contract_main(); }
 *
 * `cuda` takes part when GMLAKE_TEST_CUDA is set: "fake" for the library of fake_libcuda.c,
 * anything else for a GPU.
 */
#ifndef GML_TEST_DRIVER_CONTRACT_H
#define GML_TEST_DRIVER_CONTRACT_H

#include "driver/driver.h"
#include "driver/streams.h"
#include "support/check.h"
#include "support/raw_cuda.h"

/* Runs every test of the program over sim, host, fault around host, and cuda; returns the exit
 * status of main. */
int driver_contract_main(void);

/* Whether the backend under test is `cuda`, and the raw entries of its library then. */
bool contract_is_cuda(void);
const raw_cuda *contract_cuda(void);

/* Opens the backend under test with its default capacity. */
gml_driver *open_driver(void);

uint64_t free_bytes_of(gml_driver *driver);

/* Checks how much memory was taken since `before`; a GPU rounds and has other users. */
void check_taken(gml_driver *driver, uint64_t before, uint64_t taken);

/* Checks that a driver refused, said why in one line, and called it misuse where it can tell. */
void check_refused(gml_driver *driver, gml_status status);

/* The same for what our drivers refuse and a GPU was seen to accept without a word; whether it was
 * accepted. */
bool check_refused_but_on_a_gpu(gml_driver *driver, gml_status status);

/* Bytes of device memory; not to be called where has_bytes() is false. */
bool has_bytes(void);
void write_byte(gml_driver *driver, gml_address address, unsigned char value);
unsigned read_byte(gml_driver *driver, gml_address address);

/* A stream that is not the default one. */
gml_stream new_stream(void);

enum { SOME_GRANULES = 4 };

/* A driver with a reservation, and handles of one granule each. */
typedef struct scene {
    gml_driver *driver;
    uint64_t granule; /* bytes */
    gml_address base; /* of SOME_GRANULES granules */
    gml_handle handles[SOME_GRANULES];
    uint64_t free_before; /* before the handles */
} scene;

scene open_scene(void);

/* Releases the handles that are left, checks that all memory is back, and closes. Nothing may be
 * mapped any more. */
void close_scene(scene *of);

void release_handles(scene *of);

/* By granules of the reservation; each must succeed. */
gml_address granule_at(const scene *of, uint64_t index);
void map_at(scene *of, uint64_t index, gml_handle handle);
void unmap_at(scene *of, uint64_t index, uint64_t count);
void open_access_at(scene *of, uint64_t index, uint64_t count);

#endif
