/* Codes of sums by thresholds, for instruction sets that have AVX2.
 *
 * AVX512 has no faster way: its comparisons give masks, and a masked addition for each of them
 * costs as much as two of half the width without. A file that includes this defines
 * SHORT_ROWS and WIDE_ROWS, the rows that meet a threshold at a time, and store_some.
 */
#ifndef SUDO_INTEGER_CODES_H
#define SUDO_INTEGER_CODES_H

#include "integer/kernels.h"

#include <immintrin.h>

/* 16 numbers of 16 bits from two vectors of 32 bits; the order is kept. */
INLINE __m256i together(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

INLINE void give(__m256i codes, int doubled, int32_t outputs, uint8_t *out) {
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    /* 2 c - 1 or 0; c may be 128, twice which is no byte */
    if (doubled) bytes = _mm_add_epi8(bytes, _mm_subs_epu8(bytes, _mm_set1_epi8(1)));
    if (outputs >= SUDO_BLOCK) _mm_storeu_si128((__m128i *)out, bytes);
    else store_some(out, bytes, outputs);
}

INLINE void short_codes(const __m256i *t, const __m256i *base, const sudo_after *after, int32_t outputs, const panel_sums *sums, uint8_t *const *out, int64_t place, const int rows) {
    __m256i close[SHORT_ROWS], codes[SHORT_ROWS];
    UNROLL
    for (int i = 0; i < rows; i++) codes[i] = _mm256_setzero_si256();
    for (int32_t left = after->count; left > 0; left -= after->together, base += 2) {
        const int32_t count = left < after->together ? left : after->together;
        UNROLL
        for (int i = 0; i < rows; i++) {
            const __m256i *sum = (const __m256i *)sums[i];
            close[i] = together(_mm256_sub_epi32(sum[0], base[0]), _mm256_sub_epi32(sum[1], base[1]));
        }
        UNROLL_SOME
        for (int32_t j = 0; j < count; j++, t++)
            UNROLL
            for (int i = 0; i < rows; i++) codes[i] = _mm256_sub_epi16(codes[i], _mm256_cmpgt_epi16(close[i], *t));
    }
    UNROLL
    for (int i = 0; i < rows; i++) give(codes[i], after->doubled, outputs, out[i] + place);
}

INLINE void wide_codes(const __m256i *t, const sudo_after *after, int32_t outputs, const panel_sums *sums, uint8_t *const *out, int64_t place, const int rows) {
    __m256i low[WIDE_ROWS], high[WIDE_ROWS], low_codes[WIDE_ROWS], high_codes[WIDE_ROWS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        const __m256i *sum = (const __m256i *)sums[i];
        low[i] = sum[0];
        high[i] = sum[1];
        low_codes[i] = high_codes[i] = _mm256_setzero_si256();
    }
    UNROLL_SOME
    for (int32_t j = 0; j < after->count; j++)
        UNROLL
        for (int i = 0; i < rows; i++) {
            low_codes[i] = _mm256_sub_epi32(low_codes[i], _mm256_cmpgt_epi32(low[i], t[2 * j]));
            high_codes[i] = _mm256_sub_epi32(high_codes[i], _mm256_cmpgt_epi32(high[i], t[2 * j + 1]));
        }
    UNROLL
    for (int i = 0; i < rows; i++) give(together(low_codes[i], high_codes[i]), after->doubled, outputs, out[i] + place);
}

static void compared(const sudo_after *given, int32_t first, int32_t outputs, const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    const sudo_after after = *given; /* or it is read again after every byte that is written */
    const int32_t block = first / SUDO_BLOCK, count = after.count;
    if (after.kind == SUDO_SHORT) {
        const int64_t groups = (count + after.together - 1) / after.together;
        const __m256i *t = (const __m256i *)after.thresholds + (int64_t)block * count;
        const __m256i *base = (const __m256i *)after.base + 2 * block * groups;
        for (; outputs > 0; outputs -= SUDO_BLOCK, first += SUDO_BLOCK, t += count, base += 2 * groups) {
            int32_t i = 0;
            for (; i + SHORT_ROWS <= rows; i += SHORT_ROWS) short_codes(t, base, &after, outputs, sums + i, out + i, first, SHORT_ROWS);
            for (; i < rows; i++) short_codes(t, base, &after, outputs, sums + i, out + i, first, 1);
            sums = (const panel_sums *)(sums[0] + SUDO_BLOCK);
        }
        return;
    }
    const __m256i *t = (const __m256i *)after.thresholds + 2 * (int64_t)block * count;
    for (; outputs > 0; outputs -= SUDO_BLOCK, first += SUDO_BLOCK, t += 2 * count) {
        int32_t i = 0;
        for (; i + WIDE_ROWS <= rows; i += WIDE_ROWS) wide_codes(t, &after, outputs, sums + i, out + i, first, WIDE_ROWS);
        for (; i < rows; i++) wide_codes(t, &after, outputs, sums + i, out + i, first, 1);
        sums = (const panel_sums *)(sums[0] + SUDO_BLOCK);
    }
}

#endif
