/* Integer networks with AVX512-VNNI: one instruction multiplies 64 bytes with 64 and adds up. */
#include "target.h"
#if SUDO_X86
#include <immintrin.h>
SUDO_BEGIN_TARGET("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma")
#define SHORT_ROWS 3
#define WIDE_ROWS 3
#define store_some(out, bytes, n) _mm_mask_storeu_epi8(out, (__mmask16)((1 << (n)) - 1), bytes)
#include "integer_codes.h"

#define TILE 6 /* rows: with the 4 vectors of a panel, 24 of the 32 registers hold sums */
#define SUDO_SUFFIX _vnni

INLINE __m512i four(const uint8_t *x) {
    int32_t all;
    memcpy(&all, x, 4);
    return _mm512_set1_epi32(all);
}

/* sum += the products of four bytes each. GCC 12 moves the sums of its own intrinsic about
 * between registers and memory, which doubles the time. */
INLINE void add_products(__m512i *sum, __m512i bytes, __m512i weights) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(bytes), "v"(weights));
}

/* `rows` windows times the `vectors` of a panel. An instruction takes 4 cycles, and one can
 * begin in each: where there are fewer than 4 sums, several chains add up at once. In a panel
 * of nibbles a vector is two blocks; the sums with both halves of a byte, and with the high
 * half alone, give both. */
INLINE void tile(const sudo_part *part, const windows *w, const uint8_t *panel, int32_t row, panel_sums *sums, const int rows, const int vectors, const int chains, const int nibbles) {
    const int32_t quads = (part->terms + 3) / 4;
    const int64_t stride = w->stride;
    const uint8_t *x = w->x + row * stride;
    const __m512i high = _mm512_set1_epi8((char)0xf0);
    __m512i sum[4][TILE][SUDO_PANEL]; /* fixed bounds: the compiler keeps them in registers */
    UNROLL
    for (int c = 0; c < chains; c++)
        UNROLL
        for (int i = 0; i < rows; i++)
            UNROLL
            for (int v = 0; v < vectors; v++) sum[c][i][v] = _mm512_setzero_si512();
    int32_t k = 0;
#define STEP(c)                                                                                       \
    {                                                                                                 \
        __m512i here[SUDO_PANEL];                                                                     \
        UNROLL for (int v = 0; v < vectors; v += 1 + nibbles, panel += 64) {         \
            here[v] = _mm512_load_si512(panel);                                                       \
            if (nibbles && v + 1 < vectors) here[v + 1] = _mm512_and_si512(here[v], high);            \
        }                                                                                             \
        UNROLL for (int i = 0; i < rows; i++) {                                      \
            const __m512i factor = four(x + i * stride);                                              \
            UNROLL for (int v = 0; v < vectors; v++)                                 \
                add_products(&sum[c][i][v], factor, here[v]);                                         \
        }                                                                                             \
        x += 4;                                                                                       \
    }
    for (; k + chains <= quads; k += chains)
        UNROLL
        for (int c = 0; c < chains; c++) STEP(c)
    if (chains > 1)
        for (; k < quads; k++) STEP(0)
#undef STEP
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            UNROLL
            for (int c = 1; c < chains; c++) sum[0][i][v] = _mm512_add_epi32(sum[0][i][v], sum[c][i][v]);
        }
        UNROLL
        for (int v = 0; v < vectors; v++) {
            if (nibbles && v % 2 == 0 && v + 1 < vectors) {
                const __m512i eights = _mm512_set1_epi32(8 * w->totals[row + i]);
                sum[0][i][v] = _mm512_sub_epi32(_mm512_sub_epi32(sum[0][i][v], sum[0][i][v + 1]), eights);
            } else if (nibbles) sum[0][i][v] = _mm512_srai_epi32(sum[0][i][v], 4);
            _mm512_store_si512(sums[i] + v * SUDO_BLOCK, sum[0][i][v]);
        }
    }
}

/* What a window's inputs sum up to: the weights of low halves are 8 too large. */
static void prepare(const sudo_part *part, windows *w) {
    const int32_t bytes = (part->terms + 3) / 4 * 4;
    const __m512i ones = _mm512_set1_epi8(1);
    for (int32_t i = 0; i < w->count; i++) {
        const uint8_t *x = w->x + i * w->stride;
        __m512i sum = _mm512_setzero_si512();
        int32_t k = 0;
        for (; k + 64 <= bytes; k += 64) add_products(&sum, _mm512_loadu_si512(x + k), ones);
        add_products(&sum, _mm512_maskz_loadu_epi8(((__mmask64)1 << (bytes - k)) - 1, x + k), ones);
        w->totals[i] = _mm512_reduce_add_epi32(sum);
    }
}

/* Compares the upper 24 bits of what lies beyond a place's beginning, and only where these are
 * the same the numbers themselves. */
static int shared_by_eight(const sudo_after *after, int32_t first, int32_t outputs, const int32_t *sums, uint8_t *codes) {
    if (after->steps != 1 || after->shift < 24) return 0;
    const __m512i origin = _mm512_set1_epi64(after->origin);
    const __m512i top = _mm512_set1_epi64((int64_t)(((uint64_t)(after->last + 1) << after->shift) - 1));
    const __m128i shift = _mm_cvtsi32_si128(after->shift - 24);
    const __m256i lower = _mm256_set1_epi32(0xffffff);
    for (int32_t i = 0; i < outputs; i += 8) {
        const __m512i sum = _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(sums + i)));
        const __m512i factor = _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(after->factor + first + i)));
        const __m512i fixed = _mm512_add_epi64(_mm512_mul_epi32(sum, factor), _mm512_loadu_si512(after->constant + first + i));
        const __m512i above = _mm512_min_epu64(_mm512_sub_epi64(_mm512_max_epi64(fixed, origin), origin), top);
        const __m512i place = _mm512_srl_epi64(above, shift);
        const __m256i beyond = _mm256_and_si256(_mm512_cvtepi64_epi32(place), lower);
        const __m256i entry = _mm256_i32gather_epi32((const int *)after->floor, _mm512_cvtepi64_epi32(_mm512_srli_epi64(place, 24)), 4);
        const __m256i threshold = _mm256_and_si256(entry, lower);
        const __m256i code = _mm256_sub_epi32(_mm256_srli_epi32(entry, 24), _mm256_cmpgt_epi32(beyond, threshold));
        _mm_storel_epi64((__m128i *)(codes + i), _mm256_cvtepi32_epi8(code));
        const __m256i same = _mm256_cmpeq_epi32(beyond, threshold);
        if (!_mm256_testz_si256(same, same)) shared_codes(after, first + i, 8, sums + i, codes + i);
    }
    return 1;
}

#define CASE(rows, vectors, chains)                                              \
    case (rows) * 8 + (vectors):                                                 \
        if (nibbles) tile(part, w, panel, row, sums, rows, vectors, chains, 1);  \
        else tile(part, w, panel, row, sums, rows, vectors, chains, 0);          \
        break;

static void sums_of(const sudo_part *part, const windows *w, int32_t first, int32_t outputs, int32_t row, int32_t rows, panel_sums *sums) {
    const int nibbles = part->form == SUDO_NIBBLES;
    const int64_t bytes = (part->terms + 3) / 4 * 4 * (int64_t)first;
    const uint8_t *panel = (const uint8_t *)part->weights + (nibbles ? bytes / 2 : bytes);
    const int32_t vectors = (outputs + SUDO_BLOCK - 1) / SUDO_BLOCK;
    switch (rows * 8 + vectors) {
        CASE(1, 1, 4) CASE(1, 2, 2) CASE(1, 3, 2) CASE(1, 4, 1)
        CASE(2, 1, 2) CASE(2, 2, 1) CASE(2, 3, 1) CASE(2, 4, 1)
        CASE(3, 1, 2) CASE(3, 2, 1) CASE(3, 3, 1) CASE(3, 4, 1)
        CASE(4, 1, 1) CASE(4, 2, 1) CASE(4, 3, 1) CASE(4, 4, 1)
        CASE(5, 1, 1) CASE(5, 2, 1) CASE(5, 3, 1) CASE(5, 4, 1)
        CASE(6, 1, 1) CASE(6, 2, 1) CASE(6, 3, 1) CASE(6, 4, 1)
    default: break;
    }
}

#include "integer_run.inc.h"
SUDO_END_TARGET
#endif
