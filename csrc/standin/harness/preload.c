/* What happens when the library is loaded; left out of the C checks, which choose settings later.
 */
#include "standin/standin.h"

/* A setting that cannot be understood is said before the program begins. */
static void __attribute__((constructor)) check_settings(void) {
    (void)standin_settings_get();
}
