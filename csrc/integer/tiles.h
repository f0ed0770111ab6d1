/* The instructions of AMX-INT8 that integer networks use.
 *
 * SUDO_TILES may name a header that emulates them in plain C: with it, tests run the rest of the
 * path on a CPU without AMX.
 */
#ifndef SUDO_TILES_H
#define SUDO_TILES_H

#include <stdint.h>

/* What LDTILECFG reads: the rows and the bytes in a row of each of the 8 tiles. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "an operand of LDTILECFG");

#if defined(SUDO_TILES)
#include SUDO_TILES
#else
#include <immintrin.h>
/* GCC's intrinsics do not say that they read memory: a barrier makes it write before they do. */
#define BARRIER(memory) __asm__ volatile("" : : "r"(memory) : "memory")
#define tiles_configure(config)   \
    (__extension__({              \
        BARRIER(config);          \
        _tile_loadconfig(config); \
    }))
#define tiles_release() _tile_release()
#define tile_zero(number) _tile_zero(number)
#define tile_load(number, from, stride)    \
    (__extension__({                       \
        BARRIER(from);                     \
        _tile_loadd(number, from, stride); \
    }))
#define tile_store(number, to, stride) _tile_stored(number, to, stride)
/* sums += unsigned bytes times signed bytes, four products for each sum */
#define tile_multiply(sums, bytes, weights) _tile_dpbusd(sums, bytes, weights)
#endif

#endif
