/* Integer networks with AMX-INT8: products of many windows in tiles of 16 by 16 sums. Few windows,
 * nibbles and epilogues use AVX512-VNNI.
 *
 * Experimental: no CPU with AMX has run this yet. Tests run it with the instructions in plain C
 * (tests/deploy/amx_emulated.h). It is used only on a CPU where its sums agree with plain C.
 */
#include "integer/program.h"
#if SUDO_AMX
#include <immintrin.h>

#include "integer/tiles.h"
SUDO_BEGIN_TARGET("amx-tile,amx-int8,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma")
#include "integer/vnni.h"

#define TILE_SIDE 16 /* rows of a tile, at most; a row is 64 bytes: 16 quads or 16 sums */
#define TILE (2 * TILE_SIDE)
#define MIN_WINDOWS 8 /* fewer do not use tiles: an estimate, not a measurement */
#define SUDO_SUFFIX _amx

static int uses_tiles(const sudo_part *part, int32_t rows) {
    return part->weight_layout == SUDO_PANELS_INT8 && rows >= MIN_WINDOWS;
}

/* Tiles 0 to 3 are sums: upper left, upper right, lower left, lower right. 4 and 5 are inputs,
 * upper and lower; 6 and 7 weights, left and right. */
static void configure(const sudo_part *part, int32_t rows) {
    const int32_t all = quad_count(part), tile_quads = all < TILE_SIDE ? all : TILE_SIDE;
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)(i < 6 ? rows : tile_quads);
        config.bytes[i] = (uint16_t)(i == 4 || i == 5 ? 4 * tile_quads : 64);
    }
    tiles_configure(&config);
}

/* A product configures the tiles and releases them: they are never in use outside of one. */
static void begin_product(const sudo_part *part, windows *w) {
    if (uses_tiles(part, w->count)) {
        configure(part, w->count < TILE_SIDE ? w->count : TILE_SIDE);
        memset(w->quad_counts, -1, sizeof w->quad_counts);
    } else skip_zero_quads(part, w);
}

static void end_product(const sudo_part *part, const windows *w) {
    if (uses_tiles(part, w->count)) tiles_release();
}

#define tile_rows(part, w) (uses_tiles(part, (w)->count) ? TILE : VNNI_ROWS)

/* The windows of a product. If the number of quads is no multiple of TILE_SIDE, the last step
 * starts early, so that it reads no weights beyond the end, and `last_quads` has zeros in place of
 * the inputs that the step before has used. */
typedef struct {
    const uint8_t *x;
    int64_t stride;
    int32_t second_row; /* first row of the lower tiles, which may overlap the upper ones */
    int32_t quad_count;
    uint8_t last_quads[TILE][64] __attribute__((aligned(64)));
} inputs;

typedef struct {
    const uint8_t *weights;
    int64_t stride; /* from one quad to the next */
} block;

INLINE void multiply_step(const uint8_t *x, int64_t stride, int32_t second_row, const block *blocks,
                          int64_t k, const int row_tiles, const int column_tiles) {
    tile_load(4, x, stride);
    tile_load(6, blocks[0].weights + k * blocks[0].stride, blocks[0].stride);
    tile_multiply(0, 4, 6);
    if (column_tiles == 2) {
        tile_load(7, blocks[1].weights + k * blocks[1].stride, blocks[1].stride);
        tile_multiply(1, 4, 7);
    }
    if (row_tiles == 2) {
        tile_load(5, x + second_row * stride, stride);
        tile_multiply(2, 5, 6);
        if (column_tiles == 2) tile_multiply(3, 5, 7);
    }
}

INLINE void multiply_tiles(const inputs *in, const block *blocks, int32_t *sums,
                           const int row_tiles, const int column_tiles) {
    const int64_t width = sizeof(panel_sums);
    int32_t *below = sums + (int64_t)in->second_row * SUDO_PANEL_OUTPUTS;
    tile_zero(0);
    if (column_tiles == 2) tile_zero(1);
    if (row_tiles == 2) tile_zero(2);
    if (row_tiles == 2 && column_tiles == 2) tile_zero(3);
    int32_t k = 0;
    do {
        multiply_step(in->x + 4 * (int64_t)k, in->stride, in->second_row, blocks, k, row_tiles,
                      column_tiles);
        k += TILE_SIDE;
    } while (k + TILE_SIDE <= in->quad_count);
    if (k < in->quad_count)
        multiply_step(in->last_quads[0], sizeof in->last_quads[0], in->second_row, blocks,
                      in->quad_count - TILE_SIDE, row_tiles, column_tiles);
    tile_store(0, sums, width);
    if (column_tiles == 2) tile_store(1, sums + SUDO_BLOCK, width);
    if (row_tiles == 2) tile_store(2, below, width);
    if (row_tiles == 2 && column_tiles == 2) tile_store(3, below + SUDO_BLOCK, width);
}

static void amx_sums(const sudo_part *part, const windows *w, int32_t first, int32_t outputs,
                     int32_t row, int32_t rows, panel_sums *sums) {
    const int64_t output_bytes = 4 * (int64_t)quad_count(part);
    const int32_t all = (outputs + SUDO_BLOCK - 1) / SUDO_BLOCK;
    const int32_t folded = part->fold && first + outputs == part->outputs;
    const uint8_t *panel = (const uint8_t *)part->weights + first * output_bytes;
    block blocks[SUDO_PANEL];
    for (int32_t b = 0; b < all; b++) blocks[b] = (block){panel + b * 64, (all - folded) * 64};
    if (folded) blocks[all - 1] = (block){panel + (all - 1) * SUDO_BLOCK * output_bytes, 64};
    inputs in; /* not initialised: most of it is rarely used */
    in.x = w->x + row * w->stride;
    in.stride = w->stride;
    in.second_row = rows > TILE_SIDE ? rows - TILE_SIDE : 0;
    in.quad_count = quad_count(part);
    const int32_t left = in.quad_count % TILE_SIDE;
    if (left && in.quad_count > TILE_SIDE)
        for (int32_t i = 0; i < rows; i++) {
            const __mmask64 remaining = ~(__mmask64)0 << (64 - 4 * left);
            const uint8_t *x = in.x + i * in.stride + 4 * (int64_t)(in.quad_count - TILE_SIDE);
            _mm512_store_si512(in.last_quads[i], _mm512_maskz_loadu_epi8(remaining, x));
        }
    for (int32_t b = 0; b < all; b += 2) {
        int32_t *to = sums[0] + b * SUDO_BLOCK;
        if (rows > TILE_SIDE && b + 1 < all) multiply_tiles(&in, blocks + b, to, 2, 2);
        else if (rows > TILE_SIDE) multiply_tiles(&in, blocks + b, to, 2, 1);
        else if (b + 1 < all) multiply_tiles(&in, blocks + b, to, 1, 2);
        else multiply_tiles(&in, blocks + b, to, 1, 1);
    }
}

static void tile_sums(const sudo_part *part, const windows *w, int32_t first, int32_t outputs,
                      int32_t row, int32_t rows, panel_sums *sums) {
    if (!uses_tiles(part, rows)) {
        for (int32_t i = 0; i < rows; i += VNNI_ROWS)
            vnni_sums(part, w, first, outputs, row + i, rows - i < VNNI_ROWS ? rows - i : VNNI_ROWS,
                      sums + i);
        return;
    }
    const int partial = rows < TILE_SIDE && rows < w->count; /* the last rows of many */
    if (partial) configure(part, rows);
    amx_sums(part, w, first, outputs, row, rows, sums);
    if (partial) configure(part, TILE_SIDE);
}

#include "integer/run.inc.h"

/* The self-test: products with partial tiles along terms, rows and outputs, and with the largest
 * factors. Any bytes are valid packed weights; plain C reads them in the same layout. */
#define MAX_TERMS 203
#define MAX_ROWS 44
#define MAX_BLOCKS 6
#define MAX_OUTPUTS (MAX_BLOCKS * SUDO_BLOCK)

static int product_agrees(int32_t terms, int32_t rows, int32_t outputs, int32_t fold,
                          uint32_t seed) {
    static const uint8_t INPUTS[] = {255, 255, 0, 128, 127, 254, 1, 255};
    static const int8_t WEIGHTS[] = {-128, 127, -128, -1, 1, 127, 0, -127};
    uint8_t x[MAX_ROWS * (MAX_TERMS + 1)] = {0};
    int8_t weights[MAX_OUTPUTS * (MAX_TERMS + 1)] __attribute__((aligned(64)));
    int64_t found[MAX_ROWS][MAX_OUTPUTS] = {{0}};
    int32_t factor[MAX_OUTPUTS];
    const int64_t constant[MAX_OUTPUTS] = {0};
    for (int32_t i = 0; i < MAX_OUTPUTS; i++) factor[i] = 1;
    for (size_t i = 0; i < sizeof x; i++) x[i] = INPUTS[(seed = seed * 1664525 + 1013904223) >> 29];
    for (size_t i = 0; i < sizeof weights; i++)
        weights[i] = WEIGHTS[(seed = seed * 1664525 + 1013904223) >> 29];
    sudo_part part = {.outputs = outputs,
                      .terms = terms,
                      .weight_layout = SUDO_PANELS_INT8,
                      .weights = weights,
                      .fold = fold};
    part.epilogue = (sudo_epilogue){.kind = SUDO_SCORES, .factor = factor, .constant = constant};
    const int32_t quads = quad_count(&part);
    windows w = {.x = x, .stride = 4 * quads, .count = rows};
    for (int32_t i = 0; i < rows; i++) w.out[i] = (uint8_t *)found[i];
    multiply(&part, SUDO_UINT8, &w);
    for (int32_t i = 0; i < rows; i++)
        for (int32_t o = 0; o < outputs; o++) {
            const int32_t panel = o / SUDO_PANEL_OUTPUTS * SUDO_PANEL; /* its first block */
            const int32_t blocks = (outputs + (fold ? 0 : SUDO_BLOCK - 1)) / SUDO_BLOCK;
            const int32_t number = o / SUDO_BLOCK, unfolded = number == blocks;
            int32_t width = blocks - panel < SUDO_PANEL ? blocks - panel : SUDO_PANEL;
            if (unfolded) width = 1;
            const int32_t start = unfolded ? number * quads : panel * quads + number - panel;
            const int8_t *column = weights + start * 64 + o % SUDO_BLOCK * 4;
            int64_t sum = 0;
            for (int32_t k = 0; k < 4 * quads; k++)
                sum += (int64_t)x[i * w.stride + k] * column[k / 4 * width * 64 + k % 4];
            if (sum != found[i][o]) return 0;
        }
    return 1;
}

/* Whether the sums of this CPU's tiles agree with plain C. */
int sudo_amx_self_test(void) {
    return product_agrees(203, 44, 85, 2, 1) && product_agrees(128, 32, 96, 0, 2) &&
           product_agrees(64, 16, 36, 4, 3) && product_agrees(7, 9, 17, 0, 4) &&
           product_agrees(66, 25, 8, 2, 5);
}
SUDO_END_TARGET
#endif
