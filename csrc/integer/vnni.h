/* Products, codes and shared thresholds with AVX512-VNNI, which the path with AMX needs as well. */
#ifndef SUDO_INTEGER_VNNI_H
#define SUDO_INTEGER_VNNI_H

#include <immintrin.h>

#define SHORT_ROWS 6
#define WIDE_ROWS 3
#define store_some(out, bytes, n) _mm_mask_storeu_epi8(out, (__mmask16)((1 << (n)) - 1), bytes)
#include "integer/thresholds.h"

#define LEAST_QUADS 64 /* windows of less are read as they are */
#define EARLY 32       /* where to give up the search for zeros */
#define VNNI_ROWS 6 /* of a tile: with the 4 vectors of a panel, 24 of the 32 registers hold sums */

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

/* `rows` windows times the `vectors` of a panel, or, with a second panel, `more` of that. An
 * instruction takes 4 cycles, and one can begin in each: where there are fewer than 4 sums,
 * several chains add up at once. In a panel of nibbles a vector is two blocks; the sums with
 * both halves of a byte, and with the high half alone, give both. If `some`, only the fours of
 * terms are taken that are not all 0. */
INLINE void tile(const sudo_part *part, const windows *w, const uint8_t *panel, const uint8_t *second, int32_t row, panel_sums *sums, const int rows, const int vectors, const int more, const int chains, const int nibbles, const int some) {
    const int32_t group = row / VNNI_ROWS, quads = some ? w->quads[group] : (part->terms + 3) / 4;
    const uint16_t *const quad = w->quad + group * SUDO_QUADS;
    const int64_t stride = w->stride, wide = (vectors + nibbles) / (1 + nibbles) * 64, wide_more = (more + nibbles) / (1 + nibbles) * 64;
    const uint8_t *x = w->x + row * stride, *const inputs = x, *const begin = panel, *const begin_more = second;
    const __m512i high = _mm512_set1_epi8((char)0xf0);
    const int all = vectors + more;
    __m512i sum[4][VNNI_ROWS][2 * SUDO_PANEL]; /* fixed bounds: the compiler keeps them in registers */
    UNROLL
    for (int c = 0; c < chains; c++)
        UNROLL
        for (int i = 0; i < rows; i++)
            UNROLL
            for (int v = 0; v < all; v++) sum[c][i][v] = _mm512_setzero_si512();
    int32_t k = 0;
#define LOAD(from, begin, end)                                                                        \
    UNROLL for (int v = begin; v < (end); v += 1 + nibbles, from += 64) {                             \
        here[v] = _mm512_load_si512(from);                                                            \
        if (nibbles && v + 1 < (end)) here[v + 1] = _mm512_and_si512(here[v], high);                  \
    }
#define STEP(c)                                                                                       \
    {                                                                                                 \
        __m512i here[2 * SUDO_PANEL];                                                                 \
        if (some) {                                                                                   \
            const int64_t number = quad[k + c];                                                       \
            panel = begin + number * wide, second = begin_more + number * wide_more;                  \
            x = inputs + 4 * number;                                                                  \
        }                                                                                             \
        LOAD(panel, 0, vectors)                                                                       \
        LOAD(second, vectors, all)                                                                    \
        UNROLL for (int i = 0; i < rows; i++) {                                                       \
            const __m512i factor = four(x + i * stride);                                              \
            UNROLL for (int v = 0; v < all; v++) add_products(&sum[c][i][v], factor, here[v]);        \
        }                                                                                             \
        x += 4;                                                                                       \
    }
    for (; k + chains <= quads; k += chains)
        UNROLL
        for (int c = 0; c < chains; c++) STEP(c)
    if (chains > 1)
        for (; k < quads; k++) STEP(0)
#undef STEP
#undef LOAD
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < all; v++)
            UNROLL
            for (int c = 1; c < chains; c++) sum[0][i][v] = _mm512_add_epi32(sum[0][i][v], sum[c][i][v]);
        UNROLL
        for (int v = 0; v < all; v++) {
            if (nibbles && v % 2 == 0 && v + 1 < all) {
                const __m512i eights = _mm512_set1_epi32(8 * w->totals[row + i]);
                sum[0][i][v] = _mm512_sub_epi32(_mm512_sub_epi32(sum[0][i][v], sum[0][i][v + 1]), eights);
            } else if (nibbles) sum[0][i][v] = _mm512_srai_epi32(sum[0][i][v], 4);
            _mm512_store_si512(sums[i] + v * SUDO_BLOCK, sum[0][i][v]);
        }
    }
}

/* A last block of few outputs, for several fours of terms at a time. */
INLINE void tail(const sudo_part *part, const windows *w, int32_t row, int32_t *sums, const int rows, const int fold) {
    const __m512i places = fold == 4 ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                                     : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const int8_t *weights = part->tail;
    const int32_t bytes = (part->terms + 3) / 4 * 4;
    __m512i sum[VNNI_ROWS];
    UNROLL
    for (int i = 0; i < rows; i++) sum[i] = _mm512_setzero_si512();
    for (int32_t k = 0; k < bytes; k += 4 * fold, weights += 64) {
        const __mmask16 there = bytes - k < 4 * fold ? (__mmask16)((1 << (bytes - k)) - 1) : (__mmask16)((1 << 4 * fold) - 1);
        const __m512i here = _mm512_load_si512(weights);
        UNROLL
        for (int i = 0; i < rows; i++) {
            const __m128i x = _mm_maskz_loadu_epi8(there, w->x + (row + i) * w->stride + k);
            add_products(&sum[i], _mm512_permutexvar_epi32(places, _mm512_castsi128_si512(x)), here);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(sum[i]), _mm512_extracti64x4_epi64(sum[i], 1));
        if (fold == 4) half = _mm256_add_epi32(half, _mm256_permute2x128_si256(half, half, 1));
        _mm512_store_si512(sums + i * SUDO_PANEL_OUTPUTS, _mm512_zextsi256_si512(half));
    }
}

/* The fours of inputs that are not 0 in all of some windows, counted; -1 where they are nearly all,
 * and to leave out the others would take longer than it saves. That is given up early if nothing
 * is 0 at the beginning: pictures are dark at the edge. */
static int32_t find_quads(const uint8_t *x, int64_t stride, int32_t rows, int32_t all, uint16_t *quad) {
    __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int32_t found = 0;
    for (int32_t k = 0; k < all; k += 16) {
        const __mmask16 there = all - k < 16 ? (__mmask16)((1 << (all - k)) - 1) : (__mmask16)-1;
        __m512i some = _mm512_setzero_si512();
        for (int32_t i = 0; i < rows; i++) some = _mm512_or_si512(some, _mm512_maskz_loadu_epi32(there, x + i * stride + 4 * k));
        const __mmask16 taken = _mm512_test_epi32_mask(some, some);
        _mm256_storeu_si256((__m256i *)(quad + found), _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(taken, number)));
        found += __builtin_popcount(taken);
        if (k == EARLY && found == k + 16) return -1;
        number = _mm512_add_epi32(number, _mm512_set1_epi32(16));
    }
    return found < all - all / 8 ? found : -1;
}

/* Fours of inputs that are 0 add nothing, and a picture has many of them. */
static void find_zeros(const sudo_part *part, windows *w) {
    const int32_t all = (part->terms + 3) / 4, room = w->count == 1 ? SUDO_GROUPS * SUDO_QUADS : SUDO_QUADS;
    const int able = part->direct && part->form != SUDO_LINES && all >= LEAST_QUADS && all <= room - 16;
    for (int32_t row = 0, group = 0; row < w->count; row += VNNI_ROWS, group++) {
        const int32_t rows = w->count - row < VNNI_ROWS ? w->count - row : VNNI_ROWS;
        w->quads[group] = able ? find_quads(w->x + row * w->stride, w->stride, rows, all, w->quad + group * SUDO_QUADS) : -1;
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

static void guessed(const sudo_after *given, int32_t first, int32_t outputs, const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    const sudo_after after = *given;
    const __m512 low_places = _mm512_loadu_ps(after.places), high_places = _mm512_loadu_ps(after.places + 16);
    const __m512i low_codes = _mm512_loadu_si512(after.codes), high_codes = _mm512_loadu_si512(after.codes + 16);
    const __m512 top = _mm512_set1_ps(after.top), doubt = _mm512_set1_ps(after.doubt), less = _mm512_set1_ps(-after.doubt);
    for (; outputs > 0; outputs -= SUDO_BLOCK, first += SUDO_BLOCK) {
        const __m512 scale = _mm512_load_ps(after.scale + first), offset = _mm512_load_ps(after.offset + first);
        const __mmask16 there = outputs < SUDO_BLOCK ? (__mmask16)((1 << outputs) - 1) : (__mmask16)-1;
        for (int32_t i = 0; i < rows; i++) {
            __m512 position = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[i])), scale, offset);
            position = _mm512_min_ps(_mm512_max_ps(position, _mm512_setzero_ps()), top);
            const __m512i place = _mm512_cvttps_epi32(position);
            const __m512 above = _mm512_sub_ps(position, _mm512_permutex2var_ps(low_places, place, high_places));
            const __m512i codes = _mm512_permutex2var_epi32(low_codes, place, high_codes);
            const __mmask16 surely = _mm512_cmp_ps_mask(above, doubt, _CMP_GT_OQ), perhaps = _mm512_cmp_ps_mask(above, less, _CMP_GE_OQ);
            _mm_mask_storeu_epi8(out[i] + first, there, _mm512_cvtepi32_epi8(_mm512_mask_srli_epi32(codes, surely, codes, 16)));
            if (__builtin_expect((surely ^ perhaps) & there, 0)) compared(given, first, outputs < SUDO_BLOCK ? outputs : SUDO_BLOCK, sums + i, 1, out + i);
        }
        sums = (const panel_sums *)(sums[0] + SUDO_BLOCK);
    }
}

static void codes_of(const sudo_after *after, int32_t first, int32_t outputs, const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    if (after->kind == SUDO_GUESSED) guessed(after, first, outputs, sums, rows, out);
    else compared(after, first, outputs, sums, rows, out);
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

#define TAIL(rows)                                                     \
    case rows:                                                         \
        if (part->fold == 4) tail(part, w, row, sums, rows, 4);        \
        else tail(part, w, row, sums, rows, 2);                        \
        break;

static void sums_of_tail(const sudo_part *part, const windows *w, int32_t row, int32_t rows, int32_t *sums) {
    switch (rows) {
        TAIL(1) TAIL(2) TAIL(3) TAIL(4) TAIL(5)
        TAIL(6)
    default: break;
    }
}

#define CASE(rows, vectors, more, chains)                                                        \
    case (rows) * 16 + (vectors) + (more):                                                       \
        if (nibbles) tile(part, w, panel, second, row, sums, rows, vectors, more, chains, 1, 0); \
        else tile(part, w, panel, second, row, sums, rows, vectors, more, chains, 0, 0);         \
        break;

/* The same of windows with zeros. */
#define CASE_OF_SOME(rows, vectors, more, chains)                                                \
    case (rows) * 16 + (vectors) + (more):                                                       \
        if (nibbles) tile(part, w, panel, second, row, sums, rows, vectors, more, chains, 1, 1); \
        else tile(part, w, panel, second, row, sums, rows, vectors, more, chains, 0, 1);         \
        return;

static void sums_by_vnni(const sudo_part *part, const windows *w, int32_t first, int32_t outputs, int32_t row, int32_t rows, panel_sums *sums) {
    const int nibbles = part->form == SUDO_NIBBLES;
    const int64_t line = (part->terms + 3) / 4 * (nibbles ? 2 : 4); /* bytes of an output */
    const uint8_t *panel = (const uint8_t *)part->weights + first * line, *second = panel + SUDO_PANEL_OUTPUTS * line;
    int32_t vectors = (outputs + SUDO_BLOCK - 1) / SUDO_BLOCK;
    if (part->fold && first + outputs == part->outputs) sums_of_tail(part, w, row, rows, sums[0] + --vectors * SUDO_BLOCK);
    if (w->quads[row / VNNI_ROWS] >= 0) {
        switch (rows * 16 + vectors) {
            CASE_OF_SOME(1, 1, 0, 4) CASE_OF_SOME(1, 2, 0, 2) CASE_OF_SOME(1, 3, 0, 2) CASE_OF_SOME(1, 4, 0, 1)
            CASE_OF_SOME(1, 4, 1, 1) CASE_OF_SOME(1, 4, 2, 1) CASE_OF_SOME(1, 4, 3, 1) CASE_OF_SOME(1, 4, 4, 1)
            CASE_OF_SOME(6, 1, 0, 1) CASE_OF_SOME(6, 2, 0, 1) CASE_OF_SOME(6, 3, 0, 1) CASE_OF_SOME(6, 4, 0, 1)
        default: break; /* few rows of many: as they are */
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
    default: break; /* a tail alone */
    }
}

#endif
