/* What a loader asks first: which interface this is, and what the CPU runs. */
#include "common/target.h"
#include "sudonet.h"

int32_t sudo_abi(void) { return SUDO_ABI; }

int32_t sudo_supports(int32_t path) {
#if SUDO_X86
    if (path == SUDO_PATH_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (path == SUDO_PATH_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    return path == SUDO_PATH_PORTABLE;
}
