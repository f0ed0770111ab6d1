/* Integer networks with AVX2.
 *
 * Its product of bytes adds pairs up in 16 bits, which saturate: `pairs` of a part says how many
 * of those surely fit. Where not even one does, bytes are widened first.
 */
#include "common/target.h"
#if SUDO_X86
#include <immintrin.h>
SUDO_BEGIN_TARGET("avx2,fma")
#include "integer/kernels.h"

#define SHORT_ROWS 4
#define WIDE_ROWS 2

static __attribute__((noinline)) void store_some(uint8_t *out, __m128i bytes, int32_t n) {
    uint8_t all[16];
    _mm_storeu_si128((__m128i *)all, bytes);
    memcpy(out, all, (size_t)n);
}
#include "integer/thresholds.h"

#define TILE 4
#define GROUP 4 /* pairs added up in 16 bits at a time, if they fit */
#define SUDO_SUFFIX _avx2

#define codes_of compared
#define prepare(part, w) ((void)0)
#define shared_by_eight(after, first, outputs, sums, codes) 0

INLINE int32_t four(const uint8_t *x) {
    int32_t all;
    memcpy(&all, x, 4);
    return all;
}

/* `rows` windows times `blocks` blocks of a panel, which has `width` bytes for four terms. */
INLINE void narrow(const sudo_part *part, const windows *w, const uint8_t *panel, int64_t width, int32_t row, panel_sums *sums, int32_t begin, const int rows, const int blocks, const int group) {
    const int32_t quads = (part->terms + 3) / 4;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[TILE][2 * SUDO_PANEL];
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < 2 * blocks; v++) sum[i][v] = _mm256_setzero_si256();
    int32_t k = 0;
#define STEP(count)                                                                                       \
    UNROLL for (int i = 0; i < rows; i++) {                                              \
        const uint8_t *x = w->x + (row + i) * w->stride + 4 * (int64_t)k;                                 \
        __m256i factor[GROUP];                                                                            \
        UNROLL for (int j = 0; j < (count); j++) factor[j] = _mm256_set1_epi32(four(x + 4 * j)); \
        UNROLL for (int v = 0; v < 2 * blocks; v++) {                                    \
            __m256i some = _mm256_maddubs_epi16(factor[0], ((const __m256i *)panel)[v]);                  \
            UNROLL for (int j = 1; j < (count); j++)                                     \
                some = _mm256_add_epi16(some, _mm256_maddubs_epi16(factor[j], ((const __m256i *)(panel + j * width))[v])); \
            sum[i][v] = _mm256_add_epi32(sum[i][v], _mm256_madd_epi16(some, ones));                       \
        }                                                                                                 \
    }
    for (; k + group <= quads; k += group, panel += group * width) STEP(group)
    if (group > 1)
        for (; k < quads; k++, panel += width) STEP(1)
#undef STEP
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < 2 * blocks; v++) _mm256_store_si256((__m256i *)(sums[i] + begin) + v, sum[i][v]);
}

/* One block, whose weights and inputs are widened to 16 bits. */
INLINE void wide(const sudo_part *part, const windows *w, const uint8_t *panel, int64_t width, int32_t row, panel_sums *sums, int32_t begin, const int rows) {
    const int32_t quads = (part->terms + 3) / 4;
    __m256i sum[2][4]; /* of two terms each */
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < 4; v++) sum[i][v] = _mm256_setzero_si256();
    for (int32_t k = 0; k < quads; k++, panel += width) {
        __m256i here[4];
        UNROLL
        for (int v = 0; v < 4; v++) here[v] = _mm256_cvtepi8_epi16(((const __m128i *)panel)[v]);
        UNROLL
        for (int i = 0; i < rows; i++) {
            const __m256i factor = _mm256_cvtepu8_epi16(_mm_set1_epi32(four(w->x + (row + i) * w->stride + 4 * (int64_t)k)));
            UNROLL
            for (int v = 0; v < 4; v++) sum[i][v] = _mm256_add_epi32(sum[i][v], _mm256_madd_epi16(factor, here[v]));
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < 2; v++) {
            const __m256i both = _mm256_hadd_epi32(sum[i][2 * v], sum[i][2 * v + 1]);
            _mm256_store_si256((__m256i *)(sums[i] + begin) + v, _mm256_permute4x64_epi64(both, 0xd8));
        }
}

/* Two blocks of nibbles, `halves` of their vectors from number `half` on; or a single one. */
INLINE void nibbles(const sudo_part *part, const windows *w, const uint8_t *panel, int64_t width, int32_t row, panel_sums *sums, int32_t begin, int single, const int rows, int half, const int halves) {
    const int32_t quads = (part->terms + 3) / 4;
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);
    const __m256i less_eight = _mm256_broadcastsi128_si256(_mm_setr_epi8(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i signed_half = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
    __m256i sum[2][2][2];
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < halves; v++) sum[i][v][0] = sum[i][v][1] = _mm256_setzero_si256();
    for (int32_t k = 0; k < quads;) {
        const int32_t end = quads - k < GROUP ? quads : k + GROUP;
        __m256i some[2][2][2];
        UNROLL
        for (int i = 0; i < rows; i++)
            UNROLL
            for (int v = 0; v < halves; v++) some[i][v][0] = some[i][v][1] = _mm256_setzero_si256();
        for (; k < end; k++, panel += width)
            UNROLL
            for (int v = 0; v < halves; v++) {
                const __m256i packed = ((const __m256i *)panel)[half + v];
                const __m256i first = _mm256_shuffle_epi8(less_eight, _mm256_and_si256(packed, low));
                const __m256i second = _mm256_shuffle_epi8(signed_half, _mm256_and_si256(_mm256_srli_epi16(packed, 4), low));
                UNROLL
                for (int i = 0; i < rows; i++) {
                    const __m256i factor = _mm256_set1_epi32(four(w->x + (row + i) * w->stride + 4 * (int64_t)k));
                    some[i][v][0] = _mm256_add_epi16(some[i][v][0], _mm256_maddubs_epi16(factor, first));
                    some[i][v][1] = _mm256_add_epi16(some[i][v][1], _mm256_maddubs_epi16(factor, second));
                }
            }
        UNROLL
        for (int i = 0; i < rows; i++)
            UNROLL
            for (int v = 0; v < halves; v++)
                UNROLL
                for (int b = 0; b < 2; b++) sum[i][v][b] = _mm256_add_epi32(sum[i][v][b], _mm256_madd_epi16(some[i][v][b], ones));
    }
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < halves; v++) {
            if (!single) _mm256_store_si256((__m256i *)(sums[i] + begin) + half + v, sum[i][v][0]);
            _mm256_store_si256((__m256i *)(sums[i] + begin + (single ? 0 : SUDO_BLOCK)) + half + v, sum[i][v][1]);
        }
}

/* Functions of their own, or the compiler mixes the loops of several and runs out of registers. */
#define APART static __attribute__((noinline)) void
#define ARGUMENTS const sudo_part *part, const windows *w, const uint8_t *panel, int64_t width, int32_t row, panel_sums *sums, int32_t begin
#define NARROW(rows, blocks)                                                                    \
    APART narrow_##rows##_##blocks(ARGUMENTS) {                                                 \
        if (part->pairs >= GROUP) narrow(part, w, panel, width, row, sums, begin, rows, blocks, GROUP); \
        else narrow(part, w, panel, width, row, sums, begin, rows, blocks, 1);                  \
    }
NARROW(1, 1) NARROW(1, 2) NARROW(1, 3) NARROW(1, 4) NARROW(2, 1) NARROW(3, 1) NARROW(4, 1)
APART wide_1(ARGUMENTS) { wide(part, w, panel, width, row, sums, begin, 1); }
APART wide_2(ARGUMENTS) { wide(part, w, panel, width, row, sums, begin, 2); }
APART nibbles_1(ARGUMENTS, int single) { nibbles(part, w, panel, width, row, sums, begin, single, 1, 0, 2); }
APART nibbles_2(ARGUMENTS, int single) {
    nibbles(part, w, panel, width, row, sums, begin, single, 2, 0, 1);
    nibbles(part, w, panel, width, row, sums, begin, single, 2, 1, 1);
}

typedef void product(ARGUMENTS);
static product *const ACROSS[] = {narrow_1_1, narrow_1_2, narrow_1_3, narrow_1_4};
static product *const DOWN[] = {narrow_1_1, narrow_2_1, narrow_3_1, narrow_4_1};

static void sums_of(const sudo_part *part, const windows *w, int32_t first, int32_t outputs, int32_t row, int32_t rows, panel_sums *sums) {
    if (outputs > SUDO_PANEL_OUTPUTS) { /* two panels */
        sums_of(part, w, first + SUDO_PANEL_OUTPUTS, outputs - SUDO_PANEL_OUTPUTS, row, rows, sums + 1);
        outputs = SUDO_PANEL_OUTPUTS;
    }
    const int in_nibbles = part->form == SUDO_NIBBLES, block = (1 + in_nibbles) * SUDO_BLOCK;
    const int32_t vectors = (outputs + block - 1) / block;
    const int64_t width = vectors * 64, skipped = (part->terms + 3) / 4 * 4 * (int64_t)first;
    const uint8_t *panel = (const uint8_t *)part->weights + (in_nibbles ? skipped / 2 : skipped);
    if (!in_nibbles && part->pairs && rows == 1) {
        ACROSS[vectors - 1](part, w, panel, width, row, sums, 0);
        return;
    }
    for (int32_t begin = 0; begin < outputs; begin += block, panel += 64) {
        if (!in_nibbles && part->pairs) {
            DOWN[rows - 1](part, w, panel, width, row, sums, begin);
            continue;
        }
        const int single = outputs - begin <= SUDO_BLOCK;
        for (int32_t i = 0; i < rows; i += 2) {
            const int two = i + 2 <= rows;
            if (in_nibbles) (two ? nibbles_2 : nibbles_1)(part, w, panel, width, row + i, sums + i, begin, single);
            else (two ? wide_2 : wide_1)(part, w, panel, width, row + i, sums + i, begin);
        }
    }
}

#include "integer/run.inc.h"
SUDO_END_TARGET
#endif
