/* Products and epilogues with AVX512-VNNI; the AMX path uses them as well. */
#ifndef SUDO_VNNI_H
#define SUDO_VNNI_H

#include <immintrin.h>

#define INT16_ROWS 6
#define INT32_ROWS 3
#define store_partial(out, bytes, n) _mm_mask_storeu_epi8(out, (__mmask16)((1 << (n)) - 1), bytes)
#include "integer/thresholds.h"

#define MIN_SPARSE_QUADS 64 /* in shorter windows zeros are not searched for */
#define DENSE_PREFIX 32     /* quads after which the search may be given up */
#define VNNI_ROWS 6         /* windows of a tile: 6 x 4 of the 32 registers hold sums */

INLINE __m512i broadcast_quad(const uint8_t *x) {
    int32_t all;
    memcpy(&all, x, 4);
    return _mm512_set1_epi32(all);
}

/* sum += the products of a quad in each lane. With its own intrinsic GCC 12 spills the sums, which
 * doubles the time. */
INLINE void add_products(__m512i *sum, __m512i bytes, __m512i weights) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(bytes), "v"(weights));
}

/* `rows` windows times `vectors` blocks of a panel and `second_vectors` of the next one. vpdpbusd
 * has a latency of 4 cycles and a throughput of one per cycle: fewer than 4 sums take several
 * dependency chains. In a panel of nibbles a vector holds two blocks; a sum over whole bytes and
 * one over the high nibbles give both. If `sparse`, only the listed quads are multiplied. */
INLINE void tile(const sudo_part *part, const windows *w, const uint8_t *panel,
                 const uint8_t *second_panel, int32_t row, panel_sums *sums, const int rows,
                 const int vectors, const int second_vectors, const int chains, const int nibbles,
                 const int sparse) {
    const int32_t group = row / VNNI_ROWS;
    const int32_t quads = sparse ? w->quad_counts[group] : quad_count(part);
    const uint16_t *const quad_indices = w->quad_indices + group * SUDO_GROUP_QUADS;
    const int64_t stride = w->stride;
    const int64_t width = (vectors + nibbles) / (1 + nibbles) * 64;
    const int64_t second_width = (second_vectors + nibbles) / (1 + nibbles) * 64;
    const uint8_t *x = w->x + row * stride, *const inputs = x;
    const uint8_t *const begin = panel, *const second_begin = second_panel;
    const __m512i high = _mm512_set1_epi8((char)0xf0);
    const int all = vectors + second_vectors;
    __m512i sum[4][VNNI_ROWS][2 * SUDO_PANEL]; /* constant bounds: kept in registers */
    UNROLL_FOR (int c = 0; c < chains; c++)
        UNROLL_FOR (int i = 0; i < rows; i++)
            UNROLL_FOR (int v = 0; v < all; v++) sum[c][i][v] = _mm512_setzero_si512();
    int32_t k = 0;
#define LOAD(from, begin, end)                                                             \
    UNROLL_FOR (int v = begin; v < (end); v += 1 + nibbles, from += 64) {                  \
        weights[v] = _mm512_load_si512(from);                                              \
        if (nibbles && v + 1 < (end)) weights[v + 1] = _mm512_and_si512(weights[v], high); \
    }
#define STEP(c)                                                                                   \
    {                                                                                             \
        __m512i weights[2 * SUDO_PANEL];                                                          \
        if (sparse) {                                                                             \
            const int64_t index = quad_indices[k + c];                                            \
            panel = begin + index * width, second_panel = second_begin + index * second_width;    \
            x = inputs + 4 * index;                                                               \
        }                                                                                         \
        LOAD(panel, 0, vectors)                                                                   \
        LOAD(second_panel, vectors, all)                                                          \
        UNROLL_FOR (int i = 0; i < rows; i++) {                                                   \
            const __m512i factor = broadcast_quad(x + i * stride);                                \
            UNROLL_FOR (int v = 0; v < all; v++) add_products(&sum[c][i][v], factor, weights[v]); \
        }                                                                                         \
        x += 4;                                                                                   \
    }
    for (; k + chains <= quads; k += chains)
        UNROLL_FOR (int c = 0; c < chains; c++) STEP(c)
    if (chains > 1)
        for (; k < quads; k++) STEP(0)
#undef STEP
#undef LOAD
    UNROLL_FOR (int i = 0; i < rows; i++) {
        UNROLL_FOR (int v = 0; v < all; v++)
            UNROLL_FOR (int c = 1; c < chains; c++)
                sum[0][i][v] = _mm512_add_epi32(sum[0][i][v], sum[c][i][v]);
        UNROLL_FOR (int v = 0; v < all; v++) {
            if (nibbles && v % 2 == 0 && v + 1 < all) {
                const __m512i eights = _mm512_set1_epi32(8 * w->input_sums[row + i]);
                sum[0][i][v] =
                    _mm512_sub_epi32(_mm512_sub_epi32(sum[0][i][v], sum[0][i][v + 1]), eights);
            } else if (nibbles) sum[0][i][v] = _mm512_srai_epi32(sum[0][i][v], 4);
            _mm512_store_si512(sums[i] + v * SUDO_BLOCK, sum[0][i][v]);
        }
    }
}

/* A folded last block of few outputs: several quads in one vector. */
INLINE void tail_tile(const sudo_part *part, const windows *w, int32_t row, int32_t *sums,
                      const int rows, const int fold) {
    const __m512i lanes = fold == 4
                              ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                              : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const int8_t *folded = part->tail;
    const int32_t bytes = 4 * quad_count(part);
    __m512i sum[VNNI_ROWS];
    UNROLL_FOR (int i = 0; i < rows; i++) sum[i] = _mm512_setzero_si512();
    for (int32_t k = 0; k < bytes; k += 4 * fold, folded += 64) {
        const __mmask16 valid = bytes - k < 4 * fold ? (__mmask16)((1 << (bytes - k)) - 1)
                                                     : (__mmask16)((1 << 4 * fold) - 1);
        const __m512i weights = _mm512_load_si512(folded);
        UNROLL_FOR (int i = 0; i < rows; i++) {
            const __m128i x = _mm_maskz_loadu_epi8(valid, w->x + (row + i) * w->stride + k);
            add_products(&sum[i], _mm512_permutexvar_epi32(lanes, _mm512_castsi128_si512(x)),
                         weights);
        }
    }
    UNROLL_FOR (int i = 0; i < rows; i++) {
        __m256i half =
            _mm256_add_epi32(_mm512_castsi512_si256(sum[i]), _mm512_extracti64x4_epi64(sum[i], 1));
        if (fold == 4) half = _mm256_add_epi32(half, _mm256_permute2x128_si256(half, half, 1));
        _mm512_store_si512(sums + i * SUDO_PANEL_OUTPUTS, _mm512_zextsi256_si512(half));
    }
}

/* Lists the quads that are nonzero in some window and returns their number, or -1 if they are so
 * many that skipping the others costs more than it saves. The search ends early if the first quads
 * are all nonzero, since images are dark at the edge. */
static int32_t find_nonzero_quads(const uint8_t *x, int64_t stride, int32_t rows, int32_t all,
                                  uint16_t *indices) {
    __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int32_t found = 0;
    for (int32_t k = 0; k < all; k += 16) {
        const __mmask16 valid = all - k < 16 ? (__mmask16)((1 << (all - k)) - 1) : (__mmask16)-1;
        __m512i any = _mm512_setzero_si512();
        for (int32_t i = 0; i < rows; i++)
            any = _mm512_or_si512(any, _mm512_maskz_loadu_epi32(valid, x + i * stride + 4 * k));
        const __mmask16 nonzero = _mm512_test_epi32_mask(any, any);
        _mm256_storeu_si256((__m256i *)(indices + found),
                            _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(nonzero, index)));
        found += __builtin_popcount(nonzero);
        if (k == DENSE_PREFIX && found == k + 16) return -1;
        index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
    }
    return found < all - all / 8 ? found : -1;
}

/* Finds quads of zeros, which add nothing: images have many. */
static void skip_zero_quads(const sudo_part *part, windows *w) {
    const int32_t all = quad_count(part);
    const int32_t space = w->count == 1 ? SUDO_MAX_GROUPS * SUDO_GROUP_QUADS : SUDO_GROUP_QUADS;
    const int possible = part->direct && part->weight_layout != SUDO_ROW_MAJOR &&
                         all >= MIN_SPARSE_QUADS && all <= space - 16;
    for (int32_t row = 0, group = 0; row < w->count; row += VNNI_ROWS, group++) {
        const int32_t rows = w->count - row < VNNI_ROWS ? w->count - row : VNNI_ROWS;
        w->quad_counts[group] =
            possible ? find_nonzero_quads(w->x + row * w->stride, w->stride, rows, all,
                                          w->quad_indices + group * SUDO_GROUP_QUADS)
                     : -1;
    }
}

/* The sums of the inputs: weights in low nibbles are 8 too large. */
static void sum_inputs(const sudo_part *part, windows *w) {
    const int32_t bytes = 4 * quad_count(part);
    const __m512i ones = _mm512_set1_epi8(1);
    for (int32_t i = 0; i < w->count; i++) {
        const uint8_t *x = w->x + i * w->stride;
        __m512i sum = _mm512_setzero_si512();
        int32_t k = 0;
        for (; k + 64 <= bytes; k += 64) add_products(&sum, _mm512_loadu_si512(x + k), ones);
        add_products(&sum, _mm512_maskz_loadu_epi8(((__mmask64)1 << (bytes - k)) - 1, x + k), ones);
        w->input_sums[i] = _mm512_reduce_add_epi32(sum);
    }
}

static void codes_by_estimate(const sudo_epilogue *given, int32_t first, int32_t outputs,
                              const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    const sudo_epilogue epilogue = *given; /* a copy, since `out` may alias what `given` has */
    const __m512 low_thresholds = _mm512_loadu_ps(epilogue.bin_thresholds);
    const __m512 high_thresholds = _mm512_loadu_ps(epilogue.bin_thresholds + 16);
    const __m512i low_codes = _mm512_loadu_si512(epilogue.bin_codes);
    const __m512i high_codes = _mm512_loadu_si512(epilogue.bin_codes + 16);
    const __m512 max_position = _mm512_set1_ps(epilogue.max_position);
    const __m512 upper = _mm512_set1_ps(epilogue.tolerance);
    const __m512 lower = _mm512_set1_ps(-epilogue.tolerance);
    for (; outputs > 0; outputs -= SUDO_BLOCK, first += SUDO_BLOCK) {
        const __m512 scale = _mm512_load_ps(epilogue.scale + first);
        const __m512 offset = _mm512_load_ps(epilogue.offset + first);
        const __mmask16 valid =
            outputs < SUDO_BLOCK ? (__mmask16)((1 << outputs) - 1) : (__mmask16)-1;
        for (int32_t i = 0; i < rows; i++) {
            __m512 position =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[i])), scale, offset);
            position = _mm512_min_ps(_mm512_max_ps(position, _mm512_setzero_ps()), max_position);
            const __m512i bin = _mm512_cvttps_epi32(position);
            const __m512 above = _mm512_sub_ps(
                position, _mm512_permutex2var_ps(low_thresholds, bin, high_thresholds));
            const __m512i codes = _mm512_permutex2var_epi32(low_codes, bin, high_codes);
            const __mmask16 surely = _mm512_cmp_ps_mask(above, upper, _CMP_GT_OQ);
            const __mmask16 possibly = _mm512_cmp_ps_mask(above, lower, _CMP_GE_OQ);
            _mm_mask_storeu_epi8(
                out[i] + first, valid,
                _mm512_cvtepi32_epi8(_mm512_mask_srli_epi32(codes, surely, codes, 16)));
            if (__builtin_expect((surely ^ possibly) & valid, 0))
                codes_by_comparison(given, first, outputs < SUDO_BLOCK ? outputs : SUDO_BLOCK,
                                    sums + i, 1, out + i);
        }
        sums = (const panel_sums *)(sums[0] + SUDO_BLOCK);
    }
}

static void threshold_codes(const sudo_epilogue *epilogue, int32_t first, int32_t outputs,
                            const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    if (epilogue->kind == SUDO_ESTIMATED)
        codes_by_estimate(epilogue, first, outputs, sums, rows, out);
    else codes_by_comparison(epilogue, first, outputs, sums, rows, out);
}

/* Compares the upper 24 bits of the distance from the start of the bin, and the whole numbers only
 * where these are equal. */
static int shared_codes_simd(const sudo_epilogue *epilogue, int32_t first, int32_t outputs,
                             const int32_t *sums, uint8_t *codes) {
    if (epilogue->max_steps != 1 || epilogue->shift < 24) return 0;
    const __m512i origin = _mm512_set1_epi64(epilogue->origin);
    const __m512i highest =
        _mm512_set1_epi64((int64_t)(((uint64_t)(epilogue->last_bin + 1) << epilogue->shift) - 1));
    const __m128i shift = _mm_cvtsi32_si128(epilogue->shift - 24);
    const __m256i lower = _mm256_set1_epi32(0xffffff);
    for (int32_t i = 0; i < outputs; i += 8) {
        const __m512i sum = _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(sums + i)));
        const __m512i factor = _mm512_cvtepi32_epi64(
            _mm256_loadu_si256((const __m256i *)(epilogue->factor + first + i)));
        const __m512i fixed = _mm512_add_epi64(_mm512_mul_epi32(sum, factor),
                                               _mm512_loadu_si512(epilogue->constant + first + i));
        const __m512i above =
            _mm512_min_epu64(_mm512_sub_epi64(_mm512_max_epi64(fixed, origin), origin), highest);
        const __m512i position = _mm512_srl_epi64(above, shift);
        const __m256i distance = _mm256_and_si256(_mm512_cvtepi64_epi32(position), lower);
        const __m256i entry =
            _mm256_i32gather_epi32((const int *)epilogue->lookup,
                                   _mm512_cvtepi64_epi32(_mm512_srli_epi64(position, 24)), 4);
        const __m256i threshold = _mm256_and_si256(entry, lower);
        const __m256i code =
            _mm256_sub_epi32(_mm256_srli_epi32(entry, 24), _mm256_cmpgt_epi32(distance, threshold));
        _mm_storel_epi64((__m128i *)(codes + i), _mm256_cvtepi32_epi8(code));
        const __m256i equal = _mm256_cmpeq_epi32(distance, threshold);
        if (!_mm256_testz_si256(equal, equal))
            shared_codes(epilogue, first + i, 8, sums + i, codes + i);
    }
    return 1;
}

#define TAIL_CASE(rows)                                              \
    case rows:                                                       \
        if (part->fold == 4) tail_tile(part, w, row, sums, rows, 4); \
        else tail_tile(part, w, row, sums, rows, 2);                 \
        break

static void tail_sums(const sudo_part *part, const windows *w, int32_t row, int32_t rows,
                      int32_t *sums) {
    switch (rows) {
        TAIL_CASE(1);
        TAIL_CASE(2);
        TAIL_CASE(3);
        TAIL_CASE(4);
        TAIL_CASE(5);
        TAIL_CASE(6);
    default: break;
    }
}

#define VNNI_TILE(rows, vectors, second, chains, nibbles, sparse) \
    tile(part, w, panel, second_panel, row, sums, rows, vectors, second, chains, nibbles, sparse)
#define CASE(rows, vectors, second, chains)                          \
    case (rows) * 16 + (vectors) + (second):                         \
        if (nibbles) VNNI_TILE(rows, vectors, second, chains, 1, 0); \
        else VNNI_TILE(rows, vectors, second, chains, 0, 0);         \
        break;
#define SPARSE_CASE(rows, vectors, second, chains)                   \
    case (rows) * 16 + (vectors) + (second):                         \
        if (nibbles) VNNI_TILE(rows, vectors, second, chains, 1, 1); \
        else VNNI_TILE(rows, vectors, second, chains, 0, 1);         \
        return;

static void vnni_sums(const sudo_part *part, const windows *w, int32_t first, int32_t outputs,
                      int32_t row, int32_t rows, panel_sums *sums) {
    const int nibbles = part->weight_layout == SUDO_PANELS_INT4;
    const int64_t output_bytes = (part->terms + 3) / 4 * (nibbles ? 2 : 4);
    const uint8_t *panel = (const uint8_t *)part->weights + first * output_bytes;
    const uint8_t *second_panel = panel + SUDO_PANEL_OUTPUTS * output_bytes;
    int32_t vectors = (outputs + SUDO_BLOCK - 1) / SUDO_BLOCK;
    if (part->fold && first + outputs == part->outputs)
        tail_sums(part, w, row, rows, sums[0] + --vectors * SUDO_BLOCK);
    /* clang-format off */
    if (w->quad_counts[row / VNNI_ROWS] >= 0) {
        switch (rows * 16 + vectors) {
            SPARSE_CASE(1, 1, 0, 4) SPARSE_CASE(1, 2, 0, 2) SPARSE_CASE(1, 3, 0, 2)
            SPARSE_CASE(1, 4, 0, 1) SPARSE_CASE(1, 4, 1, 1) SPARSE_CASE(1, 4, 2, 1)
            SPARSE_CASE(1, 4, 3, 1) SPARSE_CASE(1, 4, 4, 1)
            SPARSE_CASE(6, 1, 0, 1) SPARSE_CASE(6, 2, 0, 1) SPARSE_CASE(6, 3, 0, 1)
            SPARSE_CASE(6, 4, 0, 1)
        default: break; /* the last few rows of many are multiplied as a whole */
        }
    }
    switch (rows * 16 + vectors) {
        CASE(1, 1, 0, 4) CASE(1, 2, 0, 2) CASE(1, 3, 0, 2) CASE(1, 4, 0, 1)
        CASE(1, 4, 1, 1) CASE(1, 4, 2, 1) CASE(1, 4, 3, 1) CASE(1, 4, 4, 1)
        CASE(2, 1, 0, 2) CASE(2, 2, 0, 1) CASE(2, 3, 0, 1) CASE(2, 4, 0, 1)
        CASE(3, 1, 0, 2) CASE(3, 2, 0, 1) CASE(3, 3, 0, 1) CASE(3, 4, 0, 1)
        CASE(4, 1, 0, 1) CASE(4, 2, 0, 1) CASE(4, 3, 0, 1) CASE(4, 4, 0, 1)
        CASE(5, 1, 0, 1) CASE(5, 2, 0, 1) CASE(5, 3, 0, 1) CASE(5, 4, 0, 1)
        CASE(6, 1, 0, 1) CASE(6, 2, 0, 1) CASE(6, 3, 0, 1) CASE(6, 4, 0, 1)
    default: break; /* only a tail */
    }
    /* clang-format on */
}

#endif
