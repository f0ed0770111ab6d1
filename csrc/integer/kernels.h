/* What the kernels of every instruction set share: windows, row-major sums, fixed point. */
#ifndef SUDO_KERNELS_H
#define SUDO_KERNELS_H

#include "integer/program.h"

#include <string.h>

/* Unrolled loops: arrays that are indexed in loops of constant bounds stay in registers. */
#if defined(__clang__)
#define UNROLL_FOR _Pragma("clang loop unroll(full)") for
#define UNROLL_BY_3_FOR _Pragma("clang loop unroll_count(3)") for
#else
#define UNROLL_FOR _Pragma("GCC unroll 8") for
#define UNROLL_BY_3_FOR _Pragma("GCC unroll 3") for
#endif

#define SUDO_MAX_GROUPS 43   /* of 6 windows */
#define SUDO_GROUP_QUADS 272 /* quads listed for a group; the last 16 are only written to */

/* Windows `stride` bytes apart, and where their outputs go. */
typedef struct {
    const uint8_t *x;
    int64_t stride;
    int32_t count;
    uint8_t *out[SUDO_MAX_WINDOWS];
    const int32_t *corrections[SUDO_MAX_WINDOWS];
    int32_t input_sums[SUDO_MAX_WINDOWS]; /* for weights in nibbles */
    /* Quads that are nonzero in some window of a group: their number, or -1 to multiply all, and
     * their indices. A single window may use the space of all groups. */
    int32_t quad_counts[SUDO_MAX_GROUPS];
    uint16_t quad_indices[SUDO_MAX_GROUPS * SUDO_GROUP_QUADS];
} windows;

typedef int32_t panel_sums[SUDO_PANEL_OUTPUTS];

#define CHUNK 256  /* terms widened at a time */
#define ROW_TILE 4 /* sums computed at a time */

INLINE int32_t quad_count(const sudo_part *part) { return (part->terms + 3) / 4; }

/* Four sums at a time share what they read: four windows times one row of weights, or one window
 * times four rows. Compilers vectorise sums of 16-bit products well. */
#define ROW_MAJOR_KERNELS(wide)                                                               \
    static void four_windows_##wide(const int8_t *w, const wide(*x)[CHUNK], int32_t n,        \
                                    panel_sums *sums) {                                       \
        int32_t a = 0, b = 0, c = 0, d = 0;                                                   \
        for (int32_t k = 0; k < n; k++) {                                                     \
            a += x[0][k] * (wide)w[k];                                                        \
            b += x[1][k] * (wide)w[k];                                                        \
            c += x[2][k] * (wide)w[k];                                                        \
            d += x[3][k] * (wide)w[k];                                                        \
        }                                                                                     \
        sums[0][0] += a;                                                                      \
        sums[1][0] += b;                                                                      \
        sums[2][0] += c;                                                                      \
        sums[3][0] += d;                                                                      \
    }                                                                                         \
    static void four_outputs_##wide(const int8_t *w, int64_t terms, const wide *x, int32_t n, \
                                    int32_t *sums) {                                          \
        const int8_t *w1 = w + terms, *w2 = w1 + terms, *w3 = w2 + terms;                     \
        int32_t a = 0, b = 0, c = 0, d = 0;                                                   \
        for (int32_t k = 0; k < n; k++) {                                                     \
            a += x[k] * (wide)w[k];                                                           \
            b += x[k] * (wide)w1[k];                                                          \
            c += x[k] * (wide)w2[k];                                                          \
            d += x[k] * (wide)w3[k];                                                          \
        }                                                                                     \
        sums[0] += a;                                                                         \
        sums[1] += b;                                                                         \
        sums[2] += c;                                                                         \
        sums[3] += d;                                                                         \
    }                                                                                         \
    static void chunk_##wide(const int8_t *w, int64_t terms, int32_t n, int32_t outputs,      \
                             const wide(*x)[CHUNK], int32_t rows, panel_sums *sums) {         \
        if (rows == ROW_TILE)                                                                 \
            for (int32_t o = 0; o < outputs; o++)                                             \
                four_windows_##wide(w + o * terms, x, n, (panel_sums *)(sums[0] + o));        \
        else                                                                                  \
            for (int32_t i = 0; i < rows; i++)                                                \
                for (int32_t o = 0; o < outputs; o += ROW_TILE)                               \
                    four_outputs_##wide(w + o * terms, terms, x[i], n, sums[i] + o);          \
    }
ROW_MAJOR_KERNELS(int16_t)
ROW_MAJOR_KERNELS(int32_t)

#define WIDEN(type, wide)              \
    for (int32_t i = 0; i < rows; i++) \
        for (int32_t k = 0; k < n; k++) wide[i][k] = ((const type *)(x + i * stride))[begin + k];

static void sums_row_major(const sudo_part *part, int32_t type, const windows *w, int32_t first,
                           int32_t outputs, int32_t row, int32_t rows, panel_sums *sums) {
    const int8_t *weights = (const int8_t *)part->weights + (int64_t)first * part->terms;
    const int64_t stride = w->stride;
    if (rows > ROW_TILE) {
        sums_row_major(part, type, w, first, outputs, row + ROW_TILE, rows - ROW_TILE,
                       sums + ROW_TILE);
        rows = ROW_TILE;
    }
    memset(sums, 0, (size_t)rows * sizeof(panel_sums));
    const uint8_t *x = w->x + row * stride;
    for (int32_t begin = 0; begin < part->terms; begin += CHUNK) {
        const int32_t n = part->terms - begin < CHUNK ? part->terms - begin : CHUNK;
        if (type == SUDO_UINT8 || type == SUDO_INT16) {
            int16_t narrow[ROW_TILE][CHUNK];
            if (type == SUDO_UINT8) WIDEN(uint8_t, narrow)
            else WIDEN(int16_t, narrow)
            chunk_int16_t(weights + begin, part->terms, n, outputs,
                          (const int16_t (*)[CHUNK])narrow, rows, sums);
        } else {
            int32_t wide[ROW_TILE][CHUNK];
            if (type == SUDO_UINT16) WIDEN(uint16_t, wide)
            else WIDEN(int32_t, wide)
            chunk_int32_t(weights + begin, part->terms, n, outputs, (const int32_t (*)[CHUNK])wide,
                          rows, sums);
        }
    }
}

INLINE int64_t fixed_point(int32_t sum, int32_t factor, int64_t constant) {
    return (int64_t)((uint64_t)((int64_t)sum * factor) + (uint64_t)constant);
}

/* A table says where the search starts; usually one comparison remains. */
static __attribute__((unused)) void shared_codes(const sudo_epilogue *given, int32_t first,
                                                 int32_t outputs, const int32_t *sums,
                                                 uint8_t *codes) {
    const sudo_epilogue epilogue = *given; /* a copy, since `codes` may alias what `given` has */
    const int32_t *factor = epilogue.factor + first;
    const int64_t *constant = epilogue.constant + first;
    for (int32_t i = 0; i < outputs; i++) {
        const int64_t fixed = fixed_point(sums[i], factor[i], constant[i]);
        const uint64_t above =
            fixed > epilogue.origin ? (uint64_t)fixed - (uint64_t)epilogue.origin : 0;
        const uint64_t bin = above >> epilogue.shift;
        const uint64_t last = (uint64_t)epilogue.last_bin;
        int32_t code = epilogue.lookup[bin < last ? bin : last] >> 24;
        for (int32_t step = 0; step < epilogue.max_steps; step++)
            code += fixed > epilogue.table[code];
        codes[i] = (uint8_t)code;
    }
}

#endif
