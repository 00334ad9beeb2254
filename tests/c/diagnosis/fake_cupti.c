/* A libcupti.so for machines without one: takes a subscription, and lets a test make the calls. */
#include "diagnosis/fake_cupti.h"

#include <stdbool.h>
