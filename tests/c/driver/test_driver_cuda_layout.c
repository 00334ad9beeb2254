/* The own declarations of cuda_api.h against cuda.h, where that is installed. */
#include "driver/cuda_api.h"
#include "support/check.h"

#ifdef HAS_CUDA_HEADER

#include <cuda.h>

#define SAME(ours, theirs) CHECK_EQ((ours), (theirs))

TEST(structures_have_the_same_layout) {
    SAME(sizeof(gml_cu_location), sizeof(CUmemLocation));
    SAME(offsetof(gml_cu_location, id), offsetof(CUmemLocation, id));
    SAME(sizeof(gml_cu_access), sizeof(CUmemAccessDesc));
    SAME(offsetof(gml_cu_access, flags), offsetof(CUmemAccessDesc, flags));
    SAME(sizeof(gml_cu_allocation), sizeof(CUmemAllocationProp));
    SAME(offsetof(gml_cu_allocation, handle_types),
         offsetof(CUmemAllocationProp, requestedHandleTypes));
    SAME(offsetof(gml_cu_allocation, location), offsetof(CUmemAllocationProp, location));
    SAME(offsetof(gml_cu_allocation, win32_metadata),
         offsetof(CUmemAllocationProp, win32HandleMetaData));
    SAME(offsetof(gml_cu_allocation, flags.compression),
         offsetof(CUmemAllocationProp, allocFlags.compressionType));
    SAME(offsetof(gml_cu_allocation, flags.rdma_capable),
         offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
    SAME(offsetof(gml_cu_allocation, flags.usage), offsetof(CUmemAllocationProp, allocFlags.usage));
}

TEST(scalars_have_the_same_size) {
    SAME(sizeof(gml_cu_result), sizeof(CUresult));
    SAME(sizeof(gml_cu_device), sizeof(CUdevice));
    SAME(sizeof(gml_cu_pointer), sizeof(CUdeviceptr));
    SAME(sizeof(gml_cu_handle), sizeof(CUmemGenericAllocationHandle));
    SAME(sizeof(gml_cu_context), sizeof(CUcontext));
    SAME(sizeof(gml_cu_stream), sizeof(CUstream));
    SAME(sizeof(gml_cu_event), sizeof(CUevent));
    SAME(sizeof(int), sizeof(CUstreamCaptureMode));
    SAME(sizeof(int), sizeof(CUdevice_attribute));
}

TEST(errors_have_the_same_value) {
    SAME(GML_CU_SUCCESS, CUDA_SUCCESS);
    SAME(GML_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
    SAME(GML_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
    SAME(GML_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
    SAME(GML_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
    SAME(GML_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
    SAME(GML_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
    SAME(GML_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
    SAME(GML_CU_NOT_READY, CUDA_ERROR_NOT_READY);
    SAME(GML_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
    SAME(GML_CU_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SAME(GML_CU_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    SAME(GML_CU_STREAM_CAPTURE_WRONG_THREAD, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}

TEST(options_have_the_same_value) {
    SAME(GML_CU_ATTRIBUTE_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    SAME(GML_CU_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY,
         CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    SAME(GML_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
    SAME(GML_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
    SAME(GML_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    SAME(GML_CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    SAME(GML_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    SAME(GML_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
    SAME(GML_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
    SAME(GML_CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
}

#else

int main(void) {
    return skip("no cuda.h was found when this was built");
}

#endif
