/* The control functions that need the lock. */
#include "standin/harness/control.h"

int gmlake_standin_set_pace(const char *pace, uint64_t lag) {
    standin_enter();
    bool is_known = standin_read_pace(pace, &standin_settings_get()->pace);
    standin_settings_get()->lag = lag;
    standin_leave();
    return is_known ? 0 : -1;
}

int gmlake_standin_advance(cudaStream_t stream, uint64_t count) {
    standin_enter();
    standin_stream *found = standin_stream_of(stream);
    if (found) {
        standin_advance(found, count);
    }
    standin_leave();
    return found ? 0 : -1;
}

uint64_t gmlake_standin_pending(cudaStream_t stream) {
    standin_enter();
    const standin_stream *found = standin_stream_of(stream);
    uint64_t pending = found ? found->pending : 0;
    standin_leave();
    return pending;
}
