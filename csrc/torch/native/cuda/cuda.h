#include "cuda_runtime_api.h" /* all that there is of it here */
