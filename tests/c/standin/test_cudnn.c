/* cuDNN: what its plans and its normalisation touch is exactly what the real ones would. */
#include "standin/libraries/dnn.h"
#include "support.h"

int main(void) {
    return run_cases("eager", false);
}
