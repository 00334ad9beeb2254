/* The runtime's calls about events. */
#include "standin.h"

cudaError_t
cudaEventCreate(cudaEvent_t *out)
{
    CALLED();
    standin_enter();
    return standin_return(standin_event_create(out, cudaEventDefault));
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    CALLED();
    standin_enter();
    return standin_return(standin_event_create(out, flags));
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
    CALLED();
    standin_enter();
    return standin_return(standin_event_destroy(event));
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CALLED();
    standin_enter();
    return standin_return(standin_event_record(event, stream));
}

cudaError_t
cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    CALLED();
    standin_enter();
    if (flags == cudaEventRecordDefault) {
        return standin_return(standin_event_record(event, stream));
    }
    return standin_return(flags == cudaEventRecordExternal
                              ? standin_event_record_external(event, stream)
                              : cudaErrorInvalidValue);
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
    CALLED();
    standin_enter();
    return standin_return(standin_event_query(event));
}

cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
    CALLED();
    standin_enter();
    return standin_return(standin_event_synchronize(event));
}

cudaError_t
cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    CALLED();
    standin_enter();
    return standin_return(standin_event_elapsed(milliseconds, start, end));
}
