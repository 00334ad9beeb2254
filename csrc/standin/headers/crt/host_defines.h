/* What NVIDIA's headers want of a compiler, for C compiled by gcc or clang. Their own file of this
 * name comes with their compiler, not with PyTorch. */
#ifndef GMLAKE_STANDIN_CRT_HOST_DEFINES_H
#define GMLAKE_STANDIN_CRT_HOST_DEFINES_H

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __global__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)

#endif
