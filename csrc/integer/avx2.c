/* Integer networks with AVX2.
 *
 * vpmaddubsw adds pairs of products in 16 bits and saturates. `safe_pairs` of a part says how many
 * pairs are sure to fit. Where not even one does, bytes are widened first.
 */
#include "common/target.h"
#if SUDO_X86
#include <immintrin.h>
SUDO_BEGIN_TARGET("avx2,fma")
#include "integer/kernels.h"

#define INT16_ROWS 4
#define INT32_ROWS 2

static __attribute__((noinline)) void store_partial(uint8_t *out, __m128i bytes, int32_t n) {
    uint8_t all[16];
    _mm_storeu_si128((__m128i *)all, bytes);
    memcpy(out, all, (size_t)n);
}
#include "integer/thresholds.h"

#define TILE 4
#define GROUP_QUADS 4 /* quads added in 16 bits before the sums are widened, if they fit */
#define SUDO_SUFFIX _avx2

#define threshold_codes codes_by_comparison
#define sum_inputs(part, w) ((void)0)
#define shared_codes_simd(epilogue, first, outputs, sums, codes) 0

INLINE int32_t load_quad(const uint8_t *x) {
    int32_t all;
    memcpy(&all, x, 4);
    return all;
}

/* `rows` windows times `blocks` blocks of a panel, which has `width` bytes for each quad. */
INLINE void int16_tile(const sudo_part *part, const windows *w, const uint8_t *panel, int64_t width,
                       int32_t row, panel_sums *sums, int32_t begin, const int rows,
                       const int blocks, const int group) {
    const int32_t quads = quad_count(part);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[TILE][2 * SUDO_PANEL];
    UNROLL_FOR (int i = 0; i < rows; i++)
        UNROLL_FOR (int v = 0; v < 2 * blocks; v++) sum[i][v] = _mm256_setzero_si256();
    int32_t k = 0;
#define STEP(count)                                                                              \
    UNROLL_FOR (int i = 0; i < rows; i++) {                                                      \
        const uint8_t *x = w->x + (row + i) * w->stride + 4 * (int64_t)k;                        \
        __m256i factor[GROUP_QUADS];                                                             \
        UNROLL_FOR (int j = 0; j < (count); j++)                                                 \
            factor[j] = _mm256_set1_epi32(load_quad(x + 4 * j));                                 \
        UNROLL_FOR (int v = 0; v < 2 * blocks; v++) {                                            \
            __m256i partial = _mm256_maddubs_epi16(factor[0], ((const __m256i *)panel)[v]);      \
            UNROLL_FOR (int j = 1; j < (count); j++)                                             \
                partial = _mm256_add_epi16(                                                      \
                    partial,                                                                     \
                    _mm256_maddubs_epi16(factor[j], ((const __m256i *)(panel + j * width))[v])); \
            sum[i][v] = _mm256_add_epi32(sum[i][v], _mm256_madd_epi16(partial, ones));           \
        }                                                                                        \
    }
    for (; k + group <= quads; k += group, panel += group * width) STEP(group)
    if (group > 1)
        for (; k < quads; k++, panel += width) STEP(1)
#undef STEP
    UNROLL_FOR (int i = 0; i < rows; i++)
        UNROLL_FOR (int v = 0; v < 2 * blocks; v++)
            _mm256_store_si256((__m256i *)(sums[i] + begin) + v, sum[i][v]);
}

/* One block, with weights and inputs widened to 16 bits. */
INLINE void widened_tile(const sudo_part *part, const windows *w, const uint8_t *panel,
                         int64_t width, int32_t row, panel_sums *sums, int32_t begin,
                         const int rows) {
    const int32_t quads = quad_count(part);
    __m256i sum[2][4]; /* each lane has two of the four terms */
    UNROLL_FOR (int i = 0; i < rows; i++)
        UNROLL_FOR (int v = 0; v < 4; v++) sum[i][v] = _mm256_setzero_si256();
    for (int32_t k = 0; k < quads; k++, panel += width) {
        __m256i weights[4];
        UNROLL_FOR (int v = 0; v < 4; v++)
            weights[v] = _mm256_cvtepi8_epi16(((const __m128i *)panel)[v]);
        UNROLL_FOR (int i = 0; i < rows; i++) {
            const __m256i factor = _mm256_cvtepu8_epi16(
                _mm_set1_epi32(load_quad(w->x + (row + i) * w->stride + 4 * (int64_t)k)));
            UNROLL_FOR (int v = 0; v < 4; v++)
                sum[i][v] = _mm256_add_epi32(sum[i][v], _mm256_madd_epi16(factor, weights[v]));
        }
    }
    UNROLL_FOR (int i = 0; i < rows; i++)
        UNROLL_FOR (int v = 0; v < 2; v++) {
            const __m256i both = _mm256_hadd_epi32(sum[i][2 * v], sum[i][2 * v + 1]);
            _mm256_store_si256((__m256i *)(sums[i] + begin) + v,
                               _mm256_permute4x64_epi64(both, 0xd8));
        }
}

/* Two blocks of nibbles, or an unpaired one: `halves` of their vectors, starting with `half`. */
INLINE void nibble_tile(const sudo_part *part, const windows *w, const uint8_t *panel,
                        int64_t width, int32_t row, panel_sums *sums, int32_t begin, int unpaired,
                        const int rows, int half, const int halves) {
    const int32_t quads = quad_count(part);
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);
    const __m256i offset_nibble = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i signed_nibble = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
    __m256i sum[2][2][2];
    UNROLL_FOR (int i = 0; i < rows; i++)
        UNROLL_FOR (int v = 0; v < halves; v++)
            sum[i][v][0] = sum[i][v][1] = _mm256_setzero_si256();
    for (int32_t k = 0; k < quads;) {
        const int32_t end = quads - k < GROUP_QUADS ? quads : k + GROUP_QUADS;
        __m256i partial[2][2][2];
        UNROLL_FOR (int i = 0; i < rows; i++)
            UNROLL_FOR (int v = 0; v < halves; v++)
                partial[i][v][0] = partial[i][v][1] = _mm256_setzero_si256();
        for (; k < end; k++, panel += width)
            UNROLL_FOR (int v = 0; v < halves; v++) {
                const __m256i packed = ((const __m256i *)panel)[half + v];
                const __m256i first =
                    _mm256_shuffle_epi8(offset_nibble, _mm256_and_si256(packed, low));
                const __m256i second = _mm256_shuffle_epi8(
                    signed_nibble, _mm256_and_si256(_mm256_srli_epi16(packed, 4), low));
                UNROLL_FOR (int i = 0; i < rows; i++) {
                    const __m256i factor =
                        _mm256_set1_epi32(load_quad(w->x + (row + i) * w->stride + 4 * (int64_t)k));
                    partial[i][v][0] =
                        _mm256_add_epi16(partial[i][v][0], _mm256_maddubs_epi16(factor, first));
                    partial[i][v][1] =
                        _mm256_add_epi16(partial[i][v][1], _mm256_maddubs_epi16(factor, second));
                }
            }
        UNROLL_FOR (int i = 0; i < rows; i++)
            UNROLL_FOR (int v = 0; v < halves; v++)
                UNROLL_FOR (int b = 0; b < 2; b++)
                    sum[i][v][b] =
                        _mm256_add_epi32(sum[i][v][b], _mm256_madd_epi16(partial[i][v][b], ones));
    }
    UNROLL_FOR (int i = 0; i < rows; i++)
        UNROLL_FOR (int v = 0; v < halves; v++) {
            if (!unpaired)
                _mm256_store_si256((__m256i *)(sums[i] + begin) + half + v, sum[i][v][0]);
            __m256i *to = (__m256i *)(sums[i] + begin + (unpaired ? 0 : SUDO_BLOCK)) + half + v;
            _mm256_store_si256(to, sum[i][v][1]);
        }
}

/* Not inlined: together, the loops would run out of registers. */
#define KERNEL static __attribute__((noinline)) void
#define ARGUMENTS                                                                              \
    const sudo_part *part, const windows *w, const uint8_t *panel, int64_t width, int32_t row, \
        panel_sums *sums, int32_t begin
#define INT16_KERNEL(rows, blocks)                                                          \
    KERNEL int16_##rows##_##blocks(ARGUMENTS) {                                             \
        if (part->safe_pairs >= GROUP_QUADS)                                                \
            int16_tile(part, w, panel, width, row, sums, begin, rows, blocks, GROUP_QUADS); \
        else int16_tile(part, w, panel, width, row, sums, begin, rows, blocks, 1);          \
    }
INT16_KERNEL(1, 1)
INT16_KERNEL(1, 2)
INT16_KERNEL(1, 3)
INT16_KERNEL(1, 4)
INT16_KERNEL(2, 1)
INT16_KERNEL(3, 1)
INT16_KERNEL(4, 1)
KERNEL widened_1(ARGUMENTS) { widened_tile(part, w, panel, width, row, sums, begin, 1); }
KERNEL widened_2(ARGUMENTS) { widened_tile(part, w, panel, width, row, sums, begin, 2); }
KERNEL nibbles_1(ARGUMENTS, int unpaired) {
    nibble_tile(part, w, panel, width, row, sums, begin, unpaired, 1, 0, 2);
}
KERNEL nibbles_2(ARGUMENTS, int unpaired) {
    nibble_tile(part, w, panel, width, row, sums, begin, unpaired, 2, 0, 1);
    nibble_tile(part, w, panel, width, row, sums, begin, unpaired, 2, 1, 1);
}

typedef void kernel(ARGUMENTS);
static kernel *const ONE_WINDOW[] = {int16_1_1, int16_1_2, int16_1_3, int16_1_4};
static kernel *const ONE_BLOCK[] = {int16_1_1, int16_2_1, int16_3_1, int16_4_1};

static void tile_sums(const sudo_part *part, const windows *w, int32_t first, int32_t outputs,
                      int32_t row, int32_t rows, panel_sums *sums) {
    if (outputs > SUDO_PANEL_OUTPUTS) { /* two panels */
        tile_sums(part, w, first + SUDO_PANEL_OUTPUTS, outputs - SUDO_PANEL_OUTPUTS, row, rows,
                  sums + 1);
        outputs = SUDO_PANEL_OUTPUTS;
    }
    const int in_nibbles = part->weight_layout == SUDO_PANELS_INT4;
    const int block = (1 + in_nibbles) * SUDO_BLOCK;
    const int32_t vectors = (outputs + block - 1) / block;
    const int64_t width = vectors * 64, offset = 4 * quad_count(part) * (int64_t)first;
    const uint8_t *panel = (const uint8_t *)part->weights + (in_nibbles ? offset / 2 : offset);
    if (!in_nibbles && part->safe_pairs && rows == 1) {
        ONE_WINDOW[vectors - 1](part, w, panel, width, row, sums, 0);
        return;
    }
    for (int32_t begin = 0; begin < outputs; begin += block, panel += 64) {
        if (!in_nibbles && part->safe_pairs) {
            ONE_BLOCK[rows - 1](part, w, panel, width, row, sums, begin);
            continue;
        }
        const int unpaired = outputs - begin <= SUDO_BLOCK;
        for (int32_t i = 0; i < rows; i += 2) {
            const int two = i + 2 <= rows;
            if (in_nibbles)
                (two ? nibbles_2 : nibbles_1)(part, w, panel, width, row + i, sums + i, begin,
                                              unpaired);
            else (two ? widened_2 : widened_1)(part, w, panel, width, row + i, sums + i, begin);
        }
    }
}

#include "integer/run.inc.h"
SUDO_END_TARGET
#endif
