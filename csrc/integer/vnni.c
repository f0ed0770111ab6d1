/* Integer networks with AVX512-VNNI: one instruction multiplies 64 bytes with 64 and adds up. */
#include "common/target.h"
#if SUDO_X86
#include <immintrin.h>
SUDO_BEGIN_TARGET("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma")
#include "integer/vnni.h"

#define TILE VNNI_ROWS
#define SUDO_SUFFIX _vnni
#define sums_of sums_by_vnni
#define set_up find_zeros
#define clean_up(part, w) ((void)0)
#define tile_rows(part, w) TILE

#include "integer/run.inc.h"
SUDO_END_TARGET
#endif
