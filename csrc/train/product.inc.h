/* The products of a training step, for one instruction set.
 *
 * A broadcast coefficient times a row of vectors, summed over terms in a tile of
 * registers; or, for narrow matrices, dot products along the lanes.
 */
#include "common/simd.h"

#define PANEL (W == 16 ? 7 : 4) /* vectors of a row in one tile */
#define ROWS (W == 16 ? 4 : 3)  /* rows of a tile as wide as a panel: nearly all registers */
#define SLIM_ROWS 8             /* rows of a tile one to three vectors wide */
#define DEPTH 128               /* terms summed before the next tile: their panel stays in cache */

INLINE int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

typedef struct {
    const float *coefficients;
    int64_t row_step, term_step; /* coefficient of row i, term j: [i * row_step + j * term_step] */
    const float *matrix;         /* terms x columns */
    int64_t matrix_stride;
    float *out; /* rows x columns */
    int64_t out_stride;
    int32_t rows, terms, columns; /* columns: a multiple of W */
} product;

INLINE void tile(const product *p, int32_t row, int32_t column, int32_t from, int32_t to,
                 const int rows, const int vectors) {
    V sum[SLIM_ROWS][PANEL]; /* constant bounds: kept in registers */
    float *out = p->out + row * p->out_stride + column;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            sum[i][v] = from ? v_load(out + i * p->out_stride + v * W) : v_zero();
    const float *c = p->coefficients + row * p->row_step + from * p->term_step;
    const float *m = p->matrix + from * p->matrix_stride + column;
    for (int32_t j = from; j < to; j++) {
        V row_vectors[PANEL];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) row_vectors[v] = v_load(m + v * W);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const V factor = v_set1(c[i * p->row_step]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sum[i][v] = v_fma(factor, row_vectors[v], sum[i][v]);
        }
        c += p->term_step;
        m += p->matrix_stride;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) v_store(out + i * p->out_stride + v * W, sum[i][v]);
}

/* A tile one vector wide: two sums a row, since a few dependency chains would stall. */
INLINE void slim_tile(const product *p, int32_t row, int32_t column, int32_t from, int32_t to,
                      const int rows) {
    V even[SLIM_ROWS], odd[SLIM_ROWS];
    float *out = p->out + row * p->out_stride + column;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        even[i] = from ? v_load(out + i * p->out_stride) : v_zero();
        odd[i] = v_zero();
    }
    const float *c = p->coefficients + row * p->row_step + from * p->term_step;
    const float *m = p->matrix + from * p->matrix_stride + column;
    int32_t j = from;
    for (; j + 2 <= to; j += 2) {
        const V first = v_load(m), second = v_load(m + p->matrix_stride);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            even[i] = v_fma(v_set1(c[i * p->row_step]), first, even[i]);
            odd[i] = v_fma(v_set1(c[i * p->row_step + p->term_step]), second, odd[i]);
        }
        c += 2 * p->term_step;
        m += 2 * p->matrix_stride;
    }
    if (j < to) {
        const V first = v_load(m);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) even[i] = v_fma(v_set1(c[i * p->row_step]), first, even[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) v_store(out + i * p->out_stride, v_add(even[i], odd[i]));
}

INLINE void slim_tiles(const product *p, int32_t column, int32_t from, int32_t to) {
    for (int32_t row = 0; row < p->rows;) {
        int32_t rows = p->rows - row;
        if (rows > SLIM_ROWS) rows = rows < 2 * SLIM_ROWS ? (rows + 1) / 2 : SLIM_ROWS;
        switch (rows) {
        case 1: slim_tile(p, row, column, from, to, 1); break;
        case 2: slim_tile(p, row, column, from, to, 2); break;
        case 3: slim_tile(p, row, column, from, to, 3); break;
        case 4: slim_tile(p, row, column, from, to, 4); break;
        case 5: slim_tile(p, row, column, from, to, 5); break;
        case 6: slim_tile(p, row, column, from, to, 6); break;
        case 7: slim_tile(p, row, column, from, to, 7); break;
        default: slim_tile(p, row, column, from, to, SLIM_ROWS); break;
        }
        row += rows;
    }
}

INLINE void tiles_of_width(const product *p, int32_t column, int32_t from, int32_t to,
                           const int vectors) {
    int max_rows = ROWS;
    if (W == 16 && vectors <= 3) max_rows = SLIM_ROWS;
    else if (W == 16 && vectors <= 5) max_rows = 10 - vectors;
    else if (W < 16 && vectors == 2) max_rows = 6;
    int32_t row = 0;
    for (; row + max_rows <= p->rows; row += max_rows)
        tile(p, row, column, from, to, max_rows, vectors);
    for (; max_rows > 4 && row + 4 <= p->rows; row += 4) tile(p, row, column, from, to, 4, vectors);
    switch (p->rows - row) {
    case 3: tile(p, row, column, from, to, 3, vectors); break;
    case 2: tile(p, row, column, from, to, 2, vectors); break;
    case 1: tile(p, row, column, from, to, 1, vectors); break;
    default: break;
    }
}

static void multiply(const product *p) {
    for (int32_t column = 0; column < p->columns; column += PANEL * W) {
        int32_t vectors = (p->columns - column) / W;
        if (vectors > PANEL) vectors = PANEL;
        for (int32_t from = 0; from < p->terms; from += DEPTH) {
            const int32_t to = from + DEPTH < p->terms ? from + DEPTH : p->terms;
            switch (vectors) {
            case 1: slim_tiles(p, column, from, to); break;
            case 2: tiles_of_width(p, column, from, to, 2); break;
            case 3: tiles_of_width(p, column, from, to, 3); break;
            case 4: tiles_of_width(p, column, from, to, 4); break;
#if W == 16
            case 5: tiles_of_width(p, column, from, to, 5); break;
            case 6: tiles_of_width(p, column, from, to, 6); break;
            case 7: tiles_of_width(p, column, from, to, 7); break;
#endif
            default: break;
            }
        }
    }
}

/* Inputs of a layer up to which its gradient is cheaper as dot products along the lanes. */
#define NARROW 11

INLINE void dot_product_tile(const float *delta, const float *y, int64_t lanes, float *gradient,
                             int64_t stride, const int rows) {
    V sum[5][4];
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) sum[i][k] = v_zero();
    for (int64_t b = 0; b < lanes; b += W) {
        V row_vectors[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) row_vectors[k] = v_load(y + k * lanes + b);
#pragma GCC unroll 5
        for (int i = 0; i < rows; i++) {
            const V d = v_load(delta + i * lanes + b);
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) sum[i][k] = v_fma(d, row_vectors[k], sum[i][k]);
        }
    }
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++)
        v_store_sums(gradient + i * stride, sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

/* The gradient of a narrow layer without a transpose: g[o][k] = sum_b d[o][b] y[k][b].
 * The rows of y after the inputs are ones, for the bias, and then zeros, for the padding. */
static void dot_products(const float *delta, const float *y, int64_t lanes, float *gradient,
                         int32_t rows, int64_t inputs, int64_t stride) {
    for (int32_t row = 0; row < rows; row++)
        memset(gradient + row * stride, 0, (size_t)stride * sizeof(float));
    for (int64_t k = 0; k <= inputs; k += 4) {
        for (int32_t row = 0; row < rows;) {
            const float *d = delta + row * lanes, *rows_of_y = y + k * lanes;
            float *g = gradient + row * stride + k;
            const int32_t left = rows - row, taken = left <= 5 ? left : left < 10 ? 4 : 5;
            switch (taken) {
            case 1: dot_product_tile(d, rows_of_y, lanes, g, stride, 1); break;
            case 2: dot_product_tile(d, rows_of_y, lanes, g, stride, 2); break;
            case 3: dot_product_tile(d, rows_of_y, lanes, g, stride, 3); break;
            case 4: dot_product_tile(d, rows_of_y, lanes, g, stride, 4); break;
            default: dot_product_tile(d, rows_of_y, lanes, g, stride, 5); break;
            }
            row += taken;
        }
    }
}

#if W == 16
INLINE void transpose_block(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
    __m512 r[16], s[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = v_load(from + i * from_stride);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
#define PAIR(op, a, b) _mm512_castpd_ps(op(_mm512_castps_pd(a), _mm512_castps_pd(b)))
        r[i] = PAIR(_mm512_unpacklo_pd, s[i], s[i + 2]);
        r[i + 1] = PAIR(_mm512_unpackhi_pd, s[i], s[i + 2]);
        r[i + 2] = PAIR(_mm512_unpacklo_pd, s[i + 1], s[i + 3]);
        r[i + 3] = PAIR(_mm512_unpackhi_pd, s[i + 1], s[i + 3]);
#undef PAIR
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        s[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        s[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        s[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v_store(to + i * to_stride, _mm512_shuffle_f32x4(s[i], s[i + 8], 0x88));
        v_store(to + (i + 8) * to_stride, _mm512_shuffle_f32x4(s[i], s[i + 8], 0xdd));
        v_store(to + (i + 4) * to_stride, _mm512_shuffle_f32x4(s[i + 4], s[i + 12], 0x88));
        v_store(to + (i + 12) * to_stride, _mm512_shuffle_f32x4(s[i + 4], s[i + 12], 0xdd));
    }
}
#else
INLINE void transpose_block(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[j * to_stride + i] = from[i * from_stride + j];
}
#endif

/* rows and columns: multiples of 16 */
static void transpose(const float *from, int64_t rows, int64_t columns, float *to) {
    for (int64_t i = 0; i < rows; i += 16)
        for (int64_t j = 0; j < columns; j += 16)
            transpose_block(from + i * columns + j, columns, to + j * rows + i, rows);
}
