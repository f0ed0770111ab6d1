/* Integer networks in plain C. */
#include "integer/kernels.h"

#define TILE 4
#define SUDO_SUFFIX _portable

/* Weights lie in lines here: there is nothing to prepare and no panel to add up. */
#define prepare(part, w) ((void)0)
#define sums_of(part, w, first, outputs, row, rows, sums) ((void)0)
#define shared_by_eight(after, first, outputs, sums, codes) 0

/* Thresholds are wide here. */
static void codes_of_block(const sudo_after *after, int32_t block, const int32_t *sums, uint8_t *codes) {
    const int32_t *t = (const int32_t *)after->thresholds + (int64_t)block * after->count * SUDO_BLOCK;
    int32_t counts[SUDO_BLOCK] = {0};
    for (int32_t j = 0; j < after->count; j++, t += SUDO_BLOCK)
        for (int i = 0; i < SUDO_BLOCK; i++) counts[i] += sums[i] > t[i];
    for (int i = 0; i < SUDO_BLOCK; i++) codes[i] = (uint8_t)(after->doubled && counts[i] ? 2 * counts[i] - 1 : counts[i]);
}

static void codes_of(const sudo_after *after, int32_t first, int32_t outputs, const panel_sums *sums, int32_t rows, uint8_t *const *out) {
    for (int32_t i = 0; i < rows; i++)
        for (int32_t begin = 0; begin < outputs; begin += SUDO_BLOCK) {
            uint8_t codes[SUDO_BLOCK];
            const int32_t left = outputs - begin;
            codes_of_block(after, (first + begin) / SUDO_BLOCK, sums[i] + begin, codes);
            memcpy(out[i] + first + begin, codes, (size_t)(left < SUDO_BLOCK ? left : SUDO_BLOCK));
        }
}

#include "integer/run.inc.h"
