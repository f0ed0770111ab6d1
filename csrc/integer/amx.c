/* Integer networks with AMX-INT8: products of many windows in tiles of 16 by 16 sums. Few windows,
 * nibbles and all that comes after the sums are as with AVX512-VNNI.
 *
 * This has not run on a CPU with AMX yet. Tests run it with the instructions in plain C
 * (tests/deploy/amx_emulated.h), and before it is ever chosen it must agree with plain C where it is.
 */
#include "integer/program.h"
#if SUDO_AMX
#include <immintrin.h>

#include "integer/tiles.h"
SUDO_BEGIN_TARGET("amx-tile,amx-int8,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma")
#include "integer/vnni.h"

#define SIDE 16 /* rows of a tile, at most; a row is 64 bytes, 16 fours of terms or 16 sums */
#define TILE (2 * SIDE)
#define LEAST 8 /* windows that are worth the tiles: a guess, until it is measured */
#define SUDO_SUFFIX _amx

static int in_tiles(const sudo_part *part, int32_t rows) { return part->form == SUDO_BYTES && rows >= LEAST; }

static int32_t fours(const sudo_part *part) { return (part->terms + 3) / 4; }

/* 0 to 3 are sums, above and below, left and right; 4 and 5 inputs, above and below; 6 and 7
 * weights, left and right. */
static void shape(const sudo_part *part, int32_t rows) {
    const int32_t all = fours(part), deep = all < SIDE ? all : SIDE;
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.rows[i] = (uint8_t)(i < 6 ? rows : deep);
        shapes.bytes[i] = (uint16_t)(i == 4 || i == 5 ? 4 * deep : 64);
    }
    tiles_shape(&shapes);
}

/* A product sets the shapes and lets go of them: nothing else finds tiles in use. */
static void set_up(const sudo_part *part, windows *w) {
    if (in_tiles(part, w->count)) {
        shape(part, w->count < SIDE ? w->count : SIDE);
        memset(w->quads, -1, sizeof w->quads);
    } else find_zeros(part, w);
}

static void clean_up(const sudo_part *part, const windows *w) {
    if (in_tiles(part, w->count)) tiles_release();
}

#define tile_rows(part, w) (in_tiles(part, (w)->count) ? TILE : VNNI_ROWS)

/* Where windows lie. If the last step along the terms is not a whole one, it begins earlier, so that
 * it reads no weights beyond the end; what came before finds zeros in place of its inputs. */
typedef struct {
    const uint8_t *x;
    int64_t stride;
    int32_t lower; /* the row where the tiles below begin; they may overlap those above */
    int32_t fours;
    uint8_t last[TILE][64] __attribute__((aligned(64)));
} inputs;

typedef struct {
    const uint8_t *weights;
    int64_t stride; /* from four terms to the next */
} block;

INLINE void step(const uint8_t *x, int64_t stride, int32_t lower, const block *blocks, int64_t k, const int down, const int across) {
    tile_read(4, x, stride);
    tile_read(6, blocks[0].weights + k * blocks[0].stride, blocks[0].stride);
    tile_multiply(0, 4, 6);
    if (across == 2) {
        tile_read(7, blocks[1].weights + k * blocks[1].stride, blocks[1].stride);
        tile_multiply(1, 4, 7);
    }
    if (down == 2) {
        tile_read(5, x + lower * stride, stride);
        tile_multiply(2, 5, 6);
        if (across == 2) tile_multiply(3, 5, 7);
    }
}

INLINE void square(const inputs *in, const block *blocks, int32_t *sums, const int down, const int across) {
    const int64_t width = sizeof(panel_sums);
    int32_t *below = sums + (int64_t)in->lower * SUDO_PANEL_OUTPUTS;
    tile_clear(0);
    if (across == 2) tile_clear(1);
    if (down == 2) tile_clear(2);
    if (down == 2 && across == 2) tile_clear(3);
    int32_t k = 0;
    do {
        step(in->x + 4 * (int64_t)k, in->stride, in->lower, blocks, k, down, across);
        k += SIDE;
    } while (k + SIDE <= in->fours);
    if (k < in->fours) step(in->last[0], sizeof in->last[0], in->lower, blocks, in->fours - SIDE, down, across);
    tile_write(0, sums, width);
    if (across == 2) tile_write(1, sums + SUDO_BLOCK, width);
    if (down == 2) tile_write(2, below, width);
    if (down == 2 && across == 2) tile_write(3, below + SUDO_BLOCK, width);
}

static void sums_in_tiles(const sudo_part *part, const windows *w, int32_t first, int32_t outputs, int32_t row, int32_t rows, panel_sums *sums) {
    const int64_t line = 4 * (int64_t)fours(part);
    const int32_t all = (outputs + SUDO_BLOCK - 1) / SUDO_BLOCK, folded = part->fold && first + outputs == part->outputs;
    const uint8_t *panel = (const uint8_t *)part->weights + first * line;
    block blocks[SUDO_PANEL];
    for (int32_t b = 0; b < all; b++) blocks[b] = (block){panel + b * 64, (all - folded) * 64};
    if (folded) blocks[all - 1] = (block){panel + (all - 1) * SUDO_BLOCK * line, 64};
    inputs in; /* of which most is rarely needed */
    in.x = w->x + row * w->stride;
    in.stride = w->stride;
    in.lower = rows > SIDE ? rows - SIDE : 0;
    in.fours = fours(part);
    const int32_t left = in.fours % SIDE;
    if (left && in.fours > SIDE)
        for (int32_t i = 0; i < rows; i++)
            _mm512_store_si512(in.last[i], _mm512_maskz_loadu_epi8(~(__mmask64)0 << (64 - 4 * left), in.x + i * in.stride + 4 * (int64_t)(in.fours - SIDE)));
    for (int32_t b = 0; b < all; b += 2) {
        int32_t *to = sums[0] + b * SUDO_BLOCK;
        if (rows > SIDE && b + 1 < all) square(&in, blocks + b, to, 2, 2);
        else if (rows > SIDE) square(&in, blocks + b, to, 2, 1);
        else if (b + 1 < all) square(&in, blocks + b, to, 1, 2);
        else square(&in, blocks + b, to, 1, 1);
    }
}

static void sums_of(const sudo_part *part, const windows *w, int32_t first, int32_t outputs, int32_t row, int32_t rows, panel_sums *sums) {
    if (!in_tiles(part, rows)) {
        for (int32_t i = 0; i < rows; i += VNNI_ROWS)
            sums_by_vnni(part, w, first, outputs, row + i, rows - i < VNNI_ROWS ? rows - i : VNNI_ROWS, sums + i);
        return;
    }
    const int flatter = rows < SIDE && rows < w->count; /* the last rows of many */
    if (flatter) shape(part, rows);
    sums_in_tiles(part, w, first, outputs, row, rows, sums);
    if (flatter) shape(part, SIDE);
}

#include "integer/run.inc.h"

/* Products whose terms, rows and outputs end in every way, of the largest factors among others.
 * Any bytes are packed weights; here plain C reads them as they lie. */
#define MOST_TERMS 203
#define MOST_ROWS 44
#define MOST_BLOCKS 6
#define MOST_OUTPUTS (MOST_BLOCKS * SUDO_BLOCK)

static int agrees(int32_t terms, int32_t rows, int32_t outputs, int32_t fold, uint32_t seed) {
    static const uint8_t INPUTS[] = {255, 255, 0, 128, 127, 254, 1, 255};
    static const int8_t WEIGHTS[] = {-128, 127, -128, -1, 1, 127, 0, -127};
    uint8_t x[MOST_ROWS * (MOST_TERMS + 1)] = {0};
    int8_t weights[MOST_OUTPUTS * (MOST_TERMS + 1)] __attribute__((aligned(64)));
    int64_t found[MOST_ROWS][MOST_OUTPUTS] = {{0}};
    int32_t factor[MOST_OUTPUTS];
    const int64_t constant[MOST_OUTPUTS] = {0};
    for (int32_t i = 0; i < MOST_OUTPUTS; i++) factor[i] = 1;
    for (size_t i = 0; i < sizeof x; i++) x[i] = INPUTS[(seed = seed * 1664525 + 1013904223) >> 29];
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = WEIGHTS[(seed = seed * 1664525 + 1013904223) >> 29];
    sudo_part part = {.outputs = outputs, .terms = terms, .form = SUDO_BYTES, .weights = weights, .fold = fold};
    part.after = (sudo_after){.kind = SUDO_SCORES, .factor = factor, .constant = constant};
    const int32_t quads = fours(&part);
    windows w = {.x = x, .stride = 4 * quads, .count = rows};
    for (int32_t i = 0; i < rows; i++) w.out[i] = (uint8_t *)found[i];
    multiply(&part, SUDO_UINT8, &w);
    for (int32_t i = 0; i < rows; i++)
        for (int32_t o = 0; o < outputs; o++) {
            const int32_t panel = o / SUDO_PANEL_OUTPUTS * SUDO_PANEL, whole = (outputs + (fold ? 0 : SUDO_BLOCK - 1)) / SUDO_BLOCK;
            const int32_t number = o / SUDO_BLOCK, apart = number == whole;
            const int32_t wide = apart ? 1 : whole - panel < SUDO_PANEL ? whole - panel : SUDO_PANEL;
            const int8_t *here = weights + (apart ? number * quads : panel * quads + number - panel) * 64 + o % SUDO_BLOCK * 4;
            int64_t sum = 0;
            for (int32_t k = 0; k < 4 * quads; k++) sum += (int64_t)x[i * w.stride + k] * here[k / 4 * wide * 64 + k % 4];
            if (sum != found[i][o]) return 0;
        }
    return 1;
}

/* Whether the tiles of this CPU give what plain C does. */
int sudo_amx_agrees(void) {
    return agrees(203, 44, 85, 2, 1) && agrees(128, 32, 96, 0, 2) && agrees(64, 16, 36, 4, 3) && agrees(7, 9, 17, 0, 4) && agrees(66, 25, 8, 2, 5);
}
SUDO_END_TARGET
#endif
