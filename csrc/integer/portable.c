/* Integer networks in plain C. */
#include "integer/kernels.h"

#define TILE 4
#define SUDO_SUFFIX _portable

/* Weights are row-major here: there are no panels and no nibbles. */
#define sum_inputs(part, w) ((void)0)
#define tile_sums(part, w, first, outputs, row, rows, sums) ((void)0)
#define shared_codes_simd(epilogue, first, outputs, sums, codes) 0

/* Thresholds of an output are int32 here. */
static void block_codes(const sudo_epilogue *epilogue, int32_t block, const int32_t *sums,
                        uint8_t *codes) {
    const int32_t *t =
        (const int32_t *)epilogue->thresholds + (int64_t)block * epilogue->count * SUDO_BLOCK;
    int32_t counts[SUDO_BLOCK] = {0};
    for (int32_t j = 0; j < epilogue->count; j++, t += SUDO_BLOCK)
        for (int i = 0; i < SUDO_BLOCK; i++) counts[i] += sums[i] > t[i];
    for (int i = 0; i < SUDO_BLOCK; i++)
        codes[i] = (uint8_t)(epilogue->odd_codes && counts[i] ? 2 * counts[i] - 1 : counts[i]);
}

static void threshold_codes(const sudo_epilogue *epilogue, int32_t first, int32_t outputs,
                            const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    for (int32_t i = 0; i < rows; i++)
        for (int32_t begin = 0; begin < outputs; begin += SUDO_BLOCK) {
            uint8_t codes[SUDO_BLOCK];
            const int32_t rest = outputs - begin;
            block_codes(epilogue, (first + begin) / SUDO_BLOCK, sums[i] + begin, codes);
            memcpy(out[i] + first + begin, codes, (size_t)(rest < SUDO_BLOCK ? rest : SUDO_BLOCK));
        }
}

#include "integer/run.inc.h"
