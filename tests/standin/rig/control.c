/* The control functions that need the lock. */
#include "control.h"

#include <string.h>

int
gmlake_standin_set_pace(const char *pace, uint64_t lag)
{
    static const struct {
        const char *name;
        standin_pace pace;
    } paces[] = {{"eager", STANDIN_EAGER}, {"lag", STANDIN_LAG}, {"manual", STANDIN_MANUAL}};
    for (size_t i = 0; i < sizeof paces / sizeof paces[0]; i++) {
        if (strcmp(pace, paces[i].name) == 0) {
            standin_enter();
            standin_settings_get()->pace = paces[i].pace;
            standin_settings_get()->lag = lag;
            standin_leave();
            return 0;
        }
    }
    return -1;
}

int
gmlake_standin_advance(cudaStream_t stream, uint64_t count)
{
    standin_enter();
    standin_stream *found = standin_stream_of(stream);
    if (found) {
        standin_advance(found, count);
    }
    standin_leave();
    return found ? 0 : -1;
}

uint64_t
gmlake_standin_pending(cudaStream_t stream)
{
    standin_enter();
    const standin_stream *found = standin_stream_of(stream);
    uint64_t pending = found ? found->pending : 0;
    standin_leave();
    return pending;
}
