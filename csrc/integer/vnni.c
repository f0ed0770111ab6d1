/* Integer networks with AVX512-VNNI, which multiplies and adds 64 bytes in one instruction. */
#include "common/target.h"
#if SUDO_X86
#include <immintrin.h>
SUDO_BEGIN_TARGET("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma")
#include "integer/vnni.h"

#define TILE VNNI_ROWS
#define SUDO_SUFFIX _vnni
#define tile_sums vnni_sums
#define begin_product skip_zero_quads
#define end_product(part, w) ((void)0)
#define tile_rows(part, w) TILE

#include "integer/run.inc.h"
SUDO_END_TARGET
#endif
