#define SUDO_PORTABLE
#define SUDO_SUFFIX _portable
#include "activation.inc.h"
#include "trainer.inc.h"
