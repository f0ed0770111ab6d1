#include "common/target.h"
#if SUDO_X86
SUDO_BEGIN_TARGET("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#define SUDO_AVX512
#define SUDO_SUFFIX _avx512
#include "train/activation.inc.h"
#include "train/trainer.inc.h"
SUDO_END_TARGET
#endif
