#include "common/target.h"
#if SUDO_X86
SUDO_BEGIN_TARGET("avx2,fma")
#define SUDO_AVX2
#define SUDO_SUFFIX _avx2
#include "train/activation.inc.h"
#include "train/trainer.inc.h"
SUDO_END_TARGET
#endif
