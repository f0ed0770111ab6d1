/* The instructions of AMX-INT8 that integer networks use.
 *
 * SUDO_TILES may name a header that does the same in plain C: so tests run the rest of the path on
 * a CPU without AMX.
 */
#ifndef SUDO_TILES_H
#define SUDO_TILES_H

#include <stdint.h>

/* What LDTILECFG reads: how many rows and bytes in a row each of the 8 tiles has. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;
_Static_assert(sizeof(tile_shapes) == 64, "an operand of LDTILECFG");

#if defined(SUDO_TILES)
#include SUDO_TILES
#else
#include <immintrin.h>
/* GCC's own do not say that they read memory: what is there must have been written before. */
#define WRITTEN(at) __asm__ volatile("" : : "r"(at) : "memory")
#define tiles_shape(shapes) (__extension__({ WRITTEN(shapes); _tile_loadconfig(shapes); }))
#define tiles_release() _tile_release()
#define tile_clear(number) _tile_zero(number)
#define tile_read(number, from, stride) (__extension__({ WRITTEN(from); _tile_loadd(number, from, stride); }))
#define tile_write(number, to, stride) _tile_stored(number, to, stride)
/* sums += bytes without sign times bytes with one, four at a time */
#define tile_multiply(sums, bytes, weights) _tile_dpbusd(sums, bytes, weights)
#endif

#endif
