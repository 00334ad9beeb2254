/* What errors are called. The numbers of cudaError_t and CUresult are the same for those that both
 * know. */
#include "standin/standin.h"

typedef struct error_words {
    cudaError_t error;
    const char *name, *driver_name; /* NULL: the driver has no such error */
    const char *text;
} error_words;

#define ONE(error, text) {cuda##error, "cuda" #error, NULL, text}
#define BOTH(error, driver_error, text) {cuda##error, "cuda" #error, "CUDA_" #driver_error, text}

/* The errors that the stand-in gives. */
static const error_words known[] = {
    BOTH(Success, SUCCESS, "no error"),
    BOTH(ErrorInvalidValue, ERROR_INVALID_VALUE, "invalid argument"),
    BOTH(ErrorMemoryAllocation, ERROR_OUT_OF_MEMORY, "out of memory"),
    ONE(ErrorInvalidConfiguration, "invalid configuration argument"),
    ONE(ErrorInvalidPitchValue, "invalid pitch argument"),
    ONE(ErrorInvalidSymbol, "invalid device symbol"),
    ONE(ErrorMissingConfiguration, "__global__ function call is not configured"),
    ONE(ErrorInvalidDeviceFunction, "invalid device function"),
    BOTH(ErrorInvalidDevice, ERROR_INVALID_DEVICE, "invalid device ordinal"),
    BOTH(ErrorDeviceUninitialized, ERROR_INVALID_CONTEXT, "invalid device context"),
    BOTH(ErrorFileNotFound, ERROR_FILE_NOT_FOUND, "file not found"),
    BOTH(ErrorOperatingSystem, ERROR_OPERATING_SYSTEM,
         "OS call failed or operation not supported on this OS"),
    BOTH(ErrorInvalidResourceHandle, ERROR_INVALID_HANDLE, "invalid resource handle"),
    BOTH(ErrorIllegalState, ERROR_ILLEGAL_STATE,
         "the operation cannot be performed in the present state"),
    BOTH(ErrorSymbolNotFound, ERROR_NOT_FOUND, "named symbol not found"),
    BOTH(ErrorNotReady, ERROR_NOT_READY, "device not ready"),
    BOTH(ErrorIllegalAddress, ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    BOTH(ErrorPeerAccessAlreadyEnabled, ERROR_PEER_ACCESS_ALREADY_ENABLED,
         "peer access is already enabled"),
    BOTH(ErrorHostMemoryAlreadyRegistered, ERROR_HOST_MEMORY_ALREADY_REGISTERED,
         "part or all of the requested memory range is already mapped"),
    BOTH(ErrorHostMemoryNotRegistered, ERROR_HOST_MEMORY_NOT_REGISTERED,
         "pointer does not correspond to a registered memory region"),
    BOTH(ErrorNotSupported, ERROR_NOT_SUPPORTED, "operation not supported"),
    BOTH(ErrorStreamCaptureUnsupported, ERROR_STREAM_CAPTURE_UNSUPPORTED,
         "operation not permitted when stream is capturing"),
    BOTH(ErrorStreamCaptureInvalidated, ERROR_STREAM_CAPTURE_INVALIDATED,
         "operation failed due to a previous error during capture"),
    BOTH(ErrorStreamCaptureMerge, ERROR_STREAM_CAPTURE_MERGE,
         "operation would result in a merge of separate capture sequences"),
    BOTH(ErrorStreamCaptureUnmatched, ERROR_STREAM_CAPTURE_UNMATCHED,
         "capture was not ended in the same stream as it began"),
    BOTH(ErrorStreamCaptureUnjoined, ERROR_STREAM_CAPTURE_UNJOINED,
         "capturing stream has unjoined work"),
    BOTH(ErrorStreamCaptureIsolation, ERROR_STREAM_CAPTURE_ISOLATION,
         "dependency created on uncaptured work in another stream"),
    BOTH(ErrorCapturedEvent, ERROR_CAPTURED_EVENT,
         "operation not permitted on an event last recorded in a capturing stream"),
    BOTH(ErrorStreamCaptureWrongThread, ERROR_STREAM_CAPTURE_WRONG_THREAD,
         "attempt to terminate a thread-local capture sequence from another thread"),
    BOTH(ErrorNoDevice, ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
};

/* NULL for an error that the stand-in never gives. */
static const error_words *find(int error) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if ((int)known[i].error == error) {
            return &known[i];
        }
    }
    return NULL;
}

const char *cudaGetErrorName(cudaError_t error) {
    CALLED();
    const error_words *found = find((int)error);
    return found ? found->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    CALLED();
    const error_words *found = find((int)error);
    return found ? found->text : "unrecognized error code";
}

CUresult cuGetErrorName(CUresult error, const char **out) {
    CALLED();
    const error_words *found = find((int)error);
    *out = found ? found->driver_name : NULL;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **out) {
    CALLED();
    const error_words *found = find((int)error);
    *out = found && found->driver_name ? found->text : NULL;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
