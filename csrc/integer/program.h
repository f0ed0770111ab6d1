/* Integer networks: what sudonet.deploy.runtime packs and the C core runs.
 *
 * Tensors between two steps are channels-last: height, width, channels. Sums are int32. The
 * compiler in sudonet.deploy has proven that no sum overflows.
 */
#ifndef SUDO_PROGRAM_H
#define SUDO_PROGRAM_H

#include "common/target.h"
#include "sudonet.h"

/* Whether the compiler knows AMX. */
#if defined(__clang__)
#define SUDO_AMX (SUDO_X86 && __clang_major__ >= 12)
#else
#define SUDO_AMX (SUDO_X86 && __GNUC__ >= 11)
#endif

#define SUDO_BLOCK 16 /* outputs in one vector of sums */
#define SUDO_PANEL 4  /* blocks whose weights are interleaved */
#define SUDO_PANEL_OUTPUTS (SUDO_BLOCK * SUDO_PANEL)
#define SUDO_MAX_WINDOWS 256 /* of one product */
#define SUDO_SLACK 64        /* bytes behind a buffer that may be touched */

enum sudo_type { SUDO_UINT8 = 0, SUDO_UINT16 = 1, SUDO_INT16 = 2, SUDO_INT32 = 3, SUDO_INT64 = 4 };

enum sudo_step_kind { SUDO_TRANSPOSE = 0, SUDO_AFFINE = 1, SUDO_MAX_POOL = 2, SUDO_SUM_POOL = 3 };

/* How weights are stored. A quad is four consecutive terms of a sum, the operand of one lane of
 * vpdpbusd and its kin.
 * Row-major: one int8 row of `terms` for each output, and rows of 0 up to a multiple of four
 * outputs. Inputs may have any type.
 * Panels of int8: [panel][quad][block of the panel][16 outputs][4 terms]. Inputs are uint8. With
 * AMX a folded last block (see `fold`) follows, unfolded, as a panel of its own. Panels of int4:
 * the same with two blocks in one. The low nibble of a byte is the first block's weight + 8, the
 * high one the second's in two's complement. A last block without a partner uses the high nibbles,
 * and the low ones are 0. */
enum sudo_weight_layout { SUDO_ROW_MAJOR = 0, SUDO_PANELS_INT8 = 1, SUDO_PANELS_INT4 = 2 };

/* What turns sums into outputs.
 * Int32 thresholds: [block][threshold][16 outputs].
 * Int16 thresholds: the same, compared with the saturated difference of a sum and a base. Each
 * group of `group_size` thresholds has one base: [block][group][16 outputs]. Estimated: a float32
 * position selects one of 32 bins with at most one threshold each. A position within `tolerance` of
 * that threshold is compared with the int32 thresholds. Shared thresholds: one int64 table for all
 * outputs, and sums in fixed point. Scores: the fixed-point numbers themselves. */
enum sudo_epilogue_kind {
    SUDO_THRESHOLDS_INT32 = 0,
    SUDO_THRESHOLDS_INT16 = 1,
    SUDO_ESTIMATED = 2,
    SUDO_SHARED_THRESHOLDS = 3,
    SUDO_SCORES = 4
};

typedef struct {
    int32_t kind;
    int32_t count;          /* thresholds */
    int32_t group_size;     /* int16 thresholds */
    int32_t odd_codes;      /* code c > 0 is emitted as 2 c - 1 */
    const int32_t *base;    /* int16 thresholds */
    const void *thresholds; /* int32, int16, estimated */
    /* Estimated: the position of a sum is sum * scale + offset, clamped to 0..max_position; its
     * integer part is the bin. The sum is above the bin's threshold if its position is more than
     * `tolerance` above, and is not if it is more than that below. bin_codes has what is emitted
     * below the threshold in its lower 16 bits, and what is emitted above it in the upper ones. */
    const float *scale, *offset;
    const float *bin_thresholds;
    const uint32_t *bin_codes;
    float max_position, tolerance;
    const int32_t *factor; /* shared thresholds, scores: one for each output */
    const int64_t *constant;
    const int64_t *table; /* shared: the thresholds, and INT64_MAX */
    /* Where the search for the code of a fixed-point number f starts: bin (f - origin) >> shift, at
     * most last_bin. The upper 8 bits of its entry are the least code, to which at most `max_steps`
     * are added. If that is 1, the lower 24 bits are those of the threshold's distance from the
     * start of the bin, or all set where the bin has no threshold. */
    const uint32_t *lookup;
    int64_t origin;
    int32_t shift, last_bin, max_steps;
} sudo_epilogue;

/* Outputs along one axis. Output m is at first + m * step; its window starts m * stride bytes after
 * the first one. */
typedef struct {
    int32_t first, step, count;
    int64_t stride;
    const int32_t *classes; /* of each output: which corrections apply at the border */
} sudo_axis;

/* A matrix product: outputs of a layer that read the same inputs. */
typedef struct {
    int32_t first_in, inputs;   /* channels of the input */
    int32_t first_out, outputs; /* channels of the output */
    int32_t terms;              /* taps x inputs */
    int32_t weight_layout;
    int32_t direct;   /* an example is one window, in place */
    int32_t segments; /* contiguous pieces of a window, `segment_bytes` each */
    int64_t segment_bytes;
    const int64_t *segment_offsets; /* of the first window, in bytes */
    int32_t padded; /* the input is copied between zeros, or channels are selected */
    int32_t padding_top, padding_left, padded_rows, padded_columns; /* of that copy */
    int32_t safe_pairs;  /* sums of two products that int16 holds */
    int32_t max_windows; /* gathered at a time */
    sudo_axis rows, columns;
    const void *weights;
    /* Where fold is 2 or 4, the last block has at most 16 / fold outputs and is stored apart:
     * [term / (4 fold)][fold][16 / fold outputs][4 terms]. */
    int32_t fold;
    const int8_t *tail;
    /* NULL, or what is subtracted from twice the sum: [row class][column class][output] */
    const int32_t *corrections;
    int32_t column_classes;
    sudo_epilogue epilogue;
} sudo_part;

typedef struct {
    int32_t kind, type_in, type_out;
    int32_t channels_in, rows_in, columns_in;
    int32_t channels_out, rows_out, columns_out;
    int32_t part_count;
    const sudo_part *parts;
    int32_t kernel[2], stride[2], padding[2]; /* pools */
    int32_t initial;                          /* value of a pool before its first tap */
    int32_t channels_first;                   /* transpose: the input is channels-first */
} sudo_step;

typedef struct {
    int32_t step_count, max_examples; /* examples: at a time */
    const sudo_step *steps;
    int64_t example_stride; /* bytes of an example between steps */
    int64_t scratch_bytes;  /* gathered windows, or the sums of a pool */
} sudo_program;

typedef struct {
    int32_t path;
    const sudo_program *program;
    const void *x; /* contiguous, channels first */
    void *out;
    int64_t batch;
    void *scratch;
} sudo_call;

/* A path of integer networks alone, beside those of sudo_path: AVX512 with AMX for products of many
 * windows. Experimental: no CPU with AMX has run it yet. */
#define SUDO_PATH_AMX 3

/* Whether SUDO_PATH_AMX can be used. The first call asks the operating system for the tiles and
 * compares their results with those of plain C. */
SUDO_EXPORT int32_t sudo_integer_amx(void);
/* The path whose kernels run when `path` is asked for: SUDO_PATH_AVX512 needs VNNI, too. Folded
 * tails and estimated codes need the kernels of SUDO_PATH_AVX512 or SUDO_PATH_AMX. The portable
 * ones take row-major weights only, and no int16 thresholds. */
SUDO_EXPORT int32_t sudo_integer_kernels(int32_t path);
/* Bytes of scratch that a call with this batch needs. */
SUDO_EXPORT int64_t sudo_integer_scratch(const sudo_program *program, int64_t batch);
SUDO_EXPORT void sudo_integer_run(const sudo_call *call);

#endif
