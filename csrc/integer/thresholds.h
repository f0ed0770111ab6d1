/* Compares sums with thresholds, for instruction sets that include AVX2.
 *
 * AVX512 is no faster here: its comparisons yield masks, and a masked addition costs as much as two
 * unmasked ones of half the width. A file that includes this defines INT16_ROWS and INT32_ROWS, the
 * rows compared at a time, and store_partial.
 */
#ifndef SUDO_THRESHOLDS_H
#define SUDO_THRESHOLDS_H

#include "integer/kernels.h"

#include <immintrin.h>

/* Two vectors of int32 as one of int16, saturated, in order. */
INLINE __m256i pack_int16(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

INLINE void store_codes(__m256i codes, int odd_codes, int32_t outputs, uint8_t *out) {
    __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    /* 2 c - 1 or 0; 2 c may not fit a byte */
    if (odd_codes) bytes = _mm_add_epi8(bytes, _mm_subs_epu8(bytes, _mm_set1_epi8(1)));
    if (outputs >= SUDO_BLOCK) _mm_storeu_si128((__m128i *)out, bytes);
    else store_partial(out, bytes, outputs);
}

INLINE void codes_int16(const __m256i *t, const __m256i *base, const sudo_epilogue *epilogue,
                        int32_t outputs, const panel_sums *sums, uint8_t *const *out,
                        int64_t first_output, const int rows) {
    __m256i difference[INT16_ROWS], codes[INT16_ROWS];
    UNROLL_FOR (int i = 0; i < rows; i++) codes[i] = _mm256_setzero_si256();
    for (int32_t left = epilogue->count; left > 0; left -= epilogue->group_size, base += 2) {
        const int32_t count = left < epilogue->group_size ? left : epilogue->group_size;
        UNROLL_FOR (int i = 0; i < rows; i++) {
            const __m256i *sum = (const __m256i *)sums[i];
            difference[i] =
                pack_int16(_mm256_sub_epi32(sum[0], base[0]), _mm256_sub_epi32(sum[1], base[1]));
        }
        UNROLL_BY_3_FOR (int32_t j = 0; j < count; j++, t++)
            UNROLL_FOR (int i = 0; i < rows; i++)
                codes[i] = _mm256_sub_epi16(codes[i], _mm256_cmpgt_epi16(difference[i], *t));
    }
    UNROLL_FOR (int i = 0; i < rows; i++)
        store_codes(codes[i], epilogue->odd_codes, outputs, out[i] + first_output);
}

INLINE void codes_int32(const __m256i *t, const sudo_epilogue *epilogue, int32_t outputs,
                        const panel_sums *sums, uint8_t *const *out, int64_t first_output,
                        const int rows) {
    __m256i low[INT32_ROWS], high[INT32_ROWS], low_codes[INT32_ROWS], high_codes[INT32_ROWS];
    UNROLL_FOR (int i = 0; i < rows; i++) {
        const __m256i *sum = (const __m256i *)sums[i];
        low[i] = sum[0];
        high[i] = sum[1];
        low_codes[i] = high_codes[i] = _mm256_setzero_si256();
    }
    UNROLL_BY_3_FOR (int32_t j = 0; j < epilogue->count; j++)
        UNROLL_FOR (int i = 0; i < rows; i++) {
            low_codes[i] = _mm256_sub_epi32(low_codes[i], _mm256_cmpgt_epi32(low[i], t[2 * j]));
            high_codes[i] =
                _mm256_sub_epi32(high_codes[i], _mm256_cmpgt_epi32(high[i], t[2 * j + 1]));
        }
    UNROLL_FOR (int i = 0; i < rows; i++)
        store_codes(pack_int16(low_codes[i], high_codes[i]), epilogue->odd_codes, outputs,
                    out[i] + first_output);
}

static void codes_by_comparison(const sudo_epilogue *given, int32_t first, int32_t outputs,
                                const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    const sudo_epilogue epilogue = *given; /* a copy, since `out` may alias what `given` has */
    const int32_t block = first / SUDO_BLOCK, count = epilogue.count;
    if (epilogue.kind == SUDO_THRESHOLDS_INT16) {
        const int64_t groups = (count + epilogue.group_size - 1) / epilogue.group_size;
        const __m256i *t = (const __m256i *)epilogue.thresholds + (int64_t)block * count;
        const __m256i *base = (const __m256i *)epilogue.base + 2 * block * groups;
        for (; outputs > 0;
             outputs -= SUDO_BLOCK, first += SUDO_BLOCK, t += count, base += 2 * groups) {
            int32_t i = 0;
            for (; i + INT16_ROWS <= rows; i += INT16_ROWS)
                codes_int16(t, base, &epilogue, outputs, sums + i, out + i, first, INT16_ROWS);
            for (; i < rows; i++)
                codes_int16(t, base, &epilogue, outputs, sums + i, out + i, first, 1);
            sums = (const panel_sums *)(sums[0] + SUDO_BLOCK);
        }
        return;
    }
    const __m256i *t = (const __m256i *)epilogue.thresholds + 2 * (int64_t)block * count;
    for (; outputs > 0; outputs -= SUDO_BLOCK, first += SUDO_BLOCK, t += 2 * count) {
        int32_t i = 0;
        for (; i + INT32_ROWS <= rows; i += INT32_ROWS)
            codes_int32(t, &epilogue, outputs, sums + i, out + i, first, INT32_ROWS);
        for (; i < rows; i++) codes_int32(t, &epilogue, outputs, sums + i, out + i, first, 1);
        sums = (const panel_sums *)(sums[0] + SUDO_BLOCK);
    }
}

#endif
