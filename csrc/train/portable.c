#define SUDO_PORTABLE
#define SUDO_SUFFIX _portable
#include "train/activation.inc.h"
#include "train/trainer.inc.h"
