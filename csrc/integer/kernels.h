/* What every instruction set needs: windows, sums over inputs of any type, fixed point. */
#ifndef SUDO_INTEGER_COMMON_H
#define SUDO_INTEGER_COMMON_H

#include "integer/program.h"

#include <string.h>

/* Loops whose ends are known: what they index is then kept in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_SOME _Pragma("clang loop unroll_count(3)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_SOME _Pragma("GCC unroll 3")
#endif

#define SUDO_GROUPS 43  /* of 6 windows */
#define SUDO_QUADS 272  /* fours of terms of a group, 16 of which are only written to */

/* Windows that lie `stride` bytes apart, and where their outputs go. */
typedef struct {
    const uint8_t *x;
    int64_t stride;
    int32_t count;
    uint8_t *out[SUDO_ROWS];
    const int32_t *corrections[SUDO_ROWS];
    int32_t totals[SUDO_ROWS]; /* of the inputs, where the weights are nibbles */
    /* Fours of terms that are not 0 in all windows of a group: how many, or -1 where all are to be
     * multiplied, and which. A single window may have more than its share of the room. */
    int32_t quads[SUDO_GROUPS];
    uint16_t quad[SUDO_GROUPS * SUDO_QUADS];
} windows;

typedef int32_t panel_sums[SUDO_PANEL_OUTPUTS];

#define CHUNK 256 /* terms that are widened at a time */
#define FOUR 4

/* Four sums at a time share what they read: those of four windows with one line of weights, or
 * of one window with four lines. Compilers know an instruction for sums of 16-bit products. */
#define LINES(wide)                                                                                       \
    static void down_##wide(const int8_t *w, const wide (*x)[CHUNK], int32_t n, panel_sums *sums) {       \
        int32_t a = 0, b = 0, c = 0, d = 0;                                                               \
        for (int32_t k = 0; k < n; k++) {                                                                 \
            a += x[0][k] * (wide)w[k];                                                                    \
            b += x[1][k] * (wide)w[k];                                                                    \
            c += x[2][k] * (wide)w[k];                                                                    \
            d += x[3][k] * (wide)w[k];                                                                    \
        }                                                                                                 \
        sums[0][0] += a;                                                                                  \
        sums[1][0] += b;                                                                                  \
        sums[2][0] += c;                                                                                  \
        sums[3][0] += d;                                                                                  \
    }                                                                                                     \
    static void across_##wide(const int8_t *w, int64_t terms, const wide *x, int32_t n, int32_t *sums) {  \
        const int8_t *w1 = w + terms, *w2 = w1 + terms, *w3 = w2 + terms;                                 \
        int32_t a = 0, b = 0, c = 0, d = 0;                                                               \
        for (int32_t k = 0; k < n; k++) {                                                                 \
            a += x[k] * (wide)w[k];                                                                       \
            b += x[k] * (wide)w1[k];                                                                      \
            c += x[k] * (wide)w2[k];                                                                      \
            d += x[k] * (wide)w3[k];                                                                      \
        }                                                                                                 \
        sums[0] += a;                                                                                     \
        sums[1] += b;                                                                                     \
        sums[2] += c;                                                                                     \
        sums[3] += d;                                                                                     \
    }                                                                                                     \
    static void chunk_##wide(const int8_t *w, int64_t terms, int32_t n, int32_t outputs, const wide (*x)[CHUNK], int32_t rows, panel_sums *sums) { \
        if (rows == FOUR)                                                                                 \
            for (int32_t o = 0; o < outputs; o++) down_##wide(w + o * terms, x, n, (panel_sums *)(sums[0] + o)); \
        else                                                                                              \
            for (int32_t i = 0; i < rows; i++)                                                            \
                for (int32_t o = 0; o < outputs; o += FOUR) across_##wide(w + o * terms, terms, x[i], n, sums[i] + o); \
    }
LINES(int16_t)
LINES(int32_t)

#define WIDEN(type, wide)                                                        \
    for (int32_t i = 0; i < rows; i++)                                           \
        for (int32_t k = 0; k < n; k++)                                          \
            wide[i][k] = ((const type *)(x + i * stride))[begin + k];

static void lines(const sudo_part *part, int32_t type, const windows *w, int32_t first, int32_t outputs, int32_t row, int32_t rows, panel_sums *sums) {
    const int8_t *weights = (const int8_t *)part->weights + (int64_t)first * part->terms;
    const int64_t stride = w->stride;
    if (rows > FOUR) {
        lines(part, type, w, first, outputs, row + FOUR, rows - FOUR, sums + FOUR);
        rows = FOUR;
    }
    memset(sums, 0, (size_t)rows * sizeof(panel_sums));
    const uint8_t *x = w->x + row * stride;
    for (int32_t begin = 0; begin < part->terms; begin += CHUNK) {
        const int32_t n = part->terms - begin < CHUNK ? part->terms - begin : CHUNK;
        if (type == SUDO_UINT8 || type == SUDO_INT16) {
            int16_t narrow[FOUR][CHUNK];
            if (type == SUDO_UINT8) WIDEN(uint8_t, narrow)
            else WIDEN(int16_t, narrow)
            chunk_int16_t(weights + begin, part->terms, n, outputs, (const int16_t(*)[CHUNK])narrow, rows, sums);
        } else {
            int32_t wide[FOUR][CHUNK];
            if (type == SUDO_UINT16) WIDEN(uint16_t, wide)
            else WIDEN(int32_t, wide)
            chunk_int32_t(weights + begin, part->terms, n, outputs, (const int32_t(*)[CHUNK])wide, rows, sums);
        }
    }
}

INLINE int64_t fixed_point(int32_t sum, int32_t factor, int64_t constant) {
    return (int64_t)((uint64_t)((int64_t)sum * factor) + (uint64_t)constant);
}

/* A table says where the search starts; mostly one threshold is left to compare with. */
static __attribute__((unused)) void shared_codes(const sudo_after *given, int32_t first, int32_t outputs, const int32_t *sums, uint8_t *codes) {
    const sudo_after after = *given; /* or it is read again after every byte that is written */
    const int32_t *factor = after.factor + first;
    const int64_t *constant = after.constant + first;
    for (int32_t i = 0; i < outputs; i++) {
        const int64_t fixed = fixed_point(sums[i], factor[i], constant[i]);
        const uint64_t above = fixed > after.origin ? (uint64_t)fixed - (uint64_t)after.origin : 0;
        const uint64_t place = above >> after.shift;
        int32_t code = after.floor[place < (uint64_t)after.last ? place : (uint64_t)after.last] >> 24;
        for (int32_t step = 0; step < after.steps; step++) code += fixed > after.table[code];
        codes[i] = (uint8_t)code;
    }
}

#endif
