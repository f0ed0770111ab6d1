/* Emulates the tiles of AMX-INT8 in plain C, after Intel's Software Developer's Manual: palette 1,
 * 8 tiles of at most 16 rows of 64 bytes. Where the CPU raises an exception, the process ends.
 *
 * Included by csrc/integer/tiles.h in place of the instructions. TILE_FAULT breaks one of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TILE_FAULT
#define TILE_FAULT 0
#endif
enum {
    SIGNED_INPUTS = 1,
    LOST_CARRIES = 2,
    LOST_LAST_ROW = 3,
    SATURATED_PAIRS = 4,
    WRONG_STRIDE = 5
};

typedef struct {
    int in_use;
    int rows[8], bytes[8];
    uint8_t data[8][16][64];
    int64_t products;
} tile_state;

static _Thread_local tile_state tiles;

static void require(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "AMX would raise an exception: %s\n", what);
    abort();
}

static void tiles_release(void) {
    const int64_t products = tiles.products;
    memset(&tiles, 0, sizeof tiles);
    tiles.products = products;
}

static void tiles_configure(const tile_config *config) {
    uint8_t raw[64];
    memcpy(raw, config, sizeof raw);
    tiles_release();
    if (raw[0] == 0) return;
    require(raw[0] == 1, "the palette is not 1");
    for (int i = 2; i < 16; i++)
        require(raw[i] == 0, "reserved bytes of the configuration are not 0");
    for (int i = 0; i < 16; i++) {
        const int bytes = raw[16 + 2 * i] | raw[17 + 2 * i] << 8, rows = raw[48 + i];
        require(i < 8 ? bytes <= 64 && rows <= 16 : !bytes && !rows, "a tile that is too large");
        require(!bytes == !rows, "a tile with only bytes or only rows");
        if (i < 8) tiles.bytes[i] = bytes, tiles.rows[i] = rows;
    }
    require(raw[1] == 0, "the start row is not 0, which the core never sets");
    tiles.in_use = 1;
}

static void check(int number) {
    require(tiles.in_use, "the tiles are not configured");
    require(tiles.rows[number] > 0, "a tile that is not configured");
}

static void tile_zero(int number) {
    check(number);
    memset(tiles.data[number], 0, sizeof tiles.data[number]);
}

static void tile_load(int number, const void *from, int64_t stride) {
    tile_zero(number); /* the rest of the tile becomes 0 */
    if (TILE_FAULT == WRONG_STRIDE && stride > 64) stride = 64;
    for (int64_t i = 0; i < tiles.rows[number]; i++)
        memcpy(tiles.data[number][i], (const uint8_t *)from + i * stride,
               (size_t)tiles.bytes[number]);
}

static void tile_store(int number, void *to, int64_t stride) {
    check(number);
    for (int64_t i = 0; i < tiles.rows[number] - (TILE_FAULT == LOST_LAST_ROW); i++)
        memcpy((uint8_t *)to + i * stride, tiles.data[number][i], (size_t)tiles.bytes[number]);
}

static int32_t add_quad(uint32_t sum, const uint8_t *bytes, const uint8_t *weights) {
    int32_t pair = 0;
    for (int i = 0; i < 4; i++) {
        const int32_t input = TILE_FAULT == SIGNED_INPUTS ? (int8_t)bytes[i] : bytes[i];
        const int32_t product = input * (int8_t)weights[i];
        pair = i % 2 ? pair + product : product;
        if (TILE_FAULT == SATURATED_PAIRS && pair > INT16_MAX) pair = INT16_MAX;
        if (TILE_FAULT == SATURATED_PAIRS && pair < INT16_MIN) pair = INT16_MIN;
        if (i % 2) sum += (uint32_t)pair; /* wraps */
    }
    return (int32_t)(TILE_FAULT == LOST_CARRIES ? (uint32_t)(int16_t)sum : sum);
}

static void tile_multiply(int sums, int bytes, int weights) {
    check(sums), check(bytes), check(weights);
    require(sums != bytes && sums != weights && bytes != weights, "a tile is used twice");
    require(tiles.bytes[sums] % 4 == 0 && tiles.bytes[bytes] % 4 == 0 &&
                tiles.bytes[weights] % 4 == 0,
            "the bytes of a row are no multiple of 4");
    require(tiles.bytes[sums] == tiles.bytes[weights], "sums and weights differ in columns");
    require(tiles.rows[sums] == tiles.rows[bytes], "sums and inputs differ in rows");
    require(tiles.bytes[bytes] / 4 == tiles.rows[weights], "inputs and weights differ in terms");
    for (int m = 0; m < tiles.rows[sums]; m++)
        for (int n = 0; n < tiles.bytes[sums] / 4; n++) {
            int32_t sum;
            memcpy(&sum, tiles.data[sums][m] + 4 * n, 4);
            for (int k = 0; k < tiles.rows[weights]; k++)
                sum = add_quad((uint32_t)sum, tiles.data[bytes][m] + 4 * k,
                               tiles.data[weights][k] + 4 * n);
            memcpy(tiles.data[sums][m] + 4 * n, &sum, 4);
        }
    tiles.products++;
}

/* For tests: whether this thread's tiles are in use, and how many products of tiles it has made. */
__attribute__((visibility("default"))) int32_t tiles_in_use(void) { return tiles.in_use; }
__attribute__((visibility("default"))) int64_t tile_products(void) { return tiles.products; }
