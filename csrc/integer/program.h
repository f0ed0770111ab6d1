/* Integer networks: what sudonet.deploy.runtime packs and the C core runs.
 *
 * Between the steps a tensor lies with its channels last: height, width, channels. Sums are
 * int32; that none leaves its 32 bits was proven when the network was compiled.
 */
#ifndef SUDO_INTEGER_H
#define SUDO_INTEGER_H

#include "sudonet.h"
#include "common/target.h"

/* Whether the compiler knows AMX. */
#if defined(__clang__)
#define SUDO_AMX (SUDO_X86 && __clang_major__ >= 12)
#else
#define SUDO_AMX (SUDO_X86 && __GNUC__ >= 11)
#endif

#define SUDO_BLOCK 16                              /* outputs of one vector of sums */
#define SUDO_PANEL 4                               /* blocks whose weights lie together */
#define SUDO_PANEL_OUTPUTS (SUDO_BLOCK * SUDO_PANEL)
#define SUDO_ROWS 256                              /* windows of one product, at most */
#define SUDO_SLACK 64                              /* bytes behind a buffer that may be touched */

enum sudo_type { SUDO_UINT8 = 0, SUDO_UINT16 = 1, SUDO_INT16 = 2, SUDO_INT32 = 3, SUDO_INT64 = 4 };

enum sudo_step_kind { SUDO_TURN = 0, SUDO_AFFINE = 1, SUDO_MAX_POOL = 2, SUDO_SUM_POOL = 3 };

/* How weights lie.
 * Lines: one int8 line of `terms` an output, and lines of 0 up to a multiple of four outputs;
 * for inputs of any type.
 * Bytes: [panel][term / 4][block of the panel][16 outputs][4 terms]; for uint8 inputs. With AMX a
 * folded last block (see `fold`) follows, unfolded, as a panel of its own.
 * Nibbles: the same with two blocks in one: the first block's weight + 8 is in the low half of
 * a byte, the second's, as a two's complement, in the high one. A last block without a
 * partner is in the high halves, and the low ones are 0. */
enum sudo_form { SUDO_LINES = 0, SUDO_BYTES = 1, SUDO_NIBBLES = 2 };

/* What comes of the sums.
 * Wide: codes by int32 thresholds, [block][threshold][16 outputs].
 * Short: the same in int16, for sums less a base, which may saturate. Every `together`
 * thresholds have one: [block][group][16 outputs].
 * Guessed: codes by a position in float32 and a table of 32 places, each of which has at most one
 * threshold; what lies too close to that is compared with the wide thresholds.
 * Shared: codes by one int64 table and fixed point.
 * Scores: fixed point itself. */
enum sudo_after_kind { SUDO_WIDE = 0, SUDO_SHORT = 1, SUDO_GUESSED = 2, SUDO_SHARED = 3, SUDO_SCORES = 4 };

typedef struct {
    int32_t kind;
    int32_t count;           /* thresholds */
    int32_t together;        /* short */
    int32_t doubled;         /* a code c > 0 goes out as 2 c - 1 */
    const int32_t *base;     /* short */
    const void *thresholds;  /* wide, short, guessed */
    /* Guessed: a sum lies at sum * scale + offset, cut off at 0 and at `top`; its place is the
     * integer below. It passes the place's threshold if it is more than `doubt` above it, and
     * does not if it is more than that below. `codes` of a place: what goes out below the
     * threshold, and from bit 16 on what goes out above it. */
    const float *scale, *offset;
    const float *places;
    const uint32_t *codes;
    float top, doubt;
    const int32_t *factor;   /* shared, scores: one an output */
    const int64_t *constant;
    const int64_t *table;    /* shared: the thresholds, and INT64_MAX */
    /* Where the search for the code of a fixed-point number f starts: place number
     * (f - origin) >> shift, or `last`. Its upper 8 bits are the least code, to which at most
     * `steps` are added. If that is 1, the lower 24 bits are those of the threshold's distance
     * from the beginning of the place, or all set where there is none. */
    const uint32_t *floor;
    int64_t origin;
    int32_t shift, last, steps;
} sudo_after;

/* Outputs along one axis. Number m lies at first + m * step; its window begins m * stride bytes
 * from the first one. */
typedef struct {
    int32_t first, step, count;
    int64_t stride;
    const int32_t *classes; /* of every output, for the corrections */
} sudo_axis;

/* A product: some of a layer's outputs, which see the same inputs. */
typedef struct {
    int32_t first_in, inputs;   /* channels of the input */
    int32_t first_out, outputs; /* channels of the output */
    int32_t terms;              /* taps x inputs */
    int32_t form;
    int32_t direct;             /* an example is one window, as it lies */
    int32_t runs;               /* pieces of a window that lie in one, `run` bytes each */
    int64_t run;
    const int64_t *starts;      /* of the runs of the first window, in bytes */
    int32_t framed;             /* the input is copied into zeros, or channels are picked */
    int32_t top, left, height, width; /* where in the frame, and its size */
    int32_t pairs;              /* how many sums of two products surely fit 16 bits */
    int32_t windows;            /* gathered at a time */
    sudo_axis rows, columns;
    const void *weights;
    /* Where fold is 2 or 4, the last block has at most 16 / fold outputs and lies apart:
     * [term / (4 fold)][fold][16 / fold outputs][4 terms]. */
    int32_t fold;
    const int8_t *tail;
    /* NULL, or what is taken from twice the sum: [row class][column class][output] */
    const int32_t *corrections;
    int32_t column_classes;
    sudo_after after;
} sudo_part;

typedef struct {
    int32_t kind, type_in, type_out;
    int32_t channels_in, rows_in, columns_in;
    int32_t channels_out, rows_out, columns_out;
    int32_t parts;
    const sudo_part *part;
    int32_t kernel[2], stride[2], padding[2]; /* pools */
    int32_t lowest;                           /* what a maximum begins with */
    int32_t channels_first;                   /* a turn: what comes in has channels first */
} sudo_step;

typedef struct {
    int32_t steps, examples; /* examples: at a time, at most */
    const sudo_step *step;
    int64_t stride;  /* bytes of an example between steps */
    int64_t windows; /* bytes that gathered windows or a pool's sums take */
} sudo_program;

typedef struct {
    int32_t path;
    const sudo_program *program;
    const void *x; /* contiguous, channels first */
    void *out;
    int64_t batch;
    void *scratch;
} sudo_call;

/* A path for integer networks alone, beside those of sudo_path: AVX512 with AMX for the products of
 * many windows. */
#define SUDO_PATH_AMX 3

/* Whether SUDO_PATH_AMX can be used. The first call asks the operating system for the tiles and
 * tries them: it is not chosen unless it gives what plain C does. */
SUDO_EXPORT int32_t sudo_integer_amx(void);
/* Whose kernels run on a path: SUDO_PATH_AVX512 only where the CPU has VNNI, too. Only they and
 * those of SUDO_PATH_AMX know folded tails and guessed codes; the portable ones know weights in
 * lines and, of thresholds for each output, the wide ones alone. */
SUDO_EXPORT int32_t sudo_integer_kernels(int32_t path);
/* Bytes of scratch that a call with this batch needs. */
SUDO_EXPORT int64_t sudo_integer_scratch(const sudo_program *program, int64_t batch);
SUDO_EXPORT void sudo_integer_run(const sudo_call *call);

#endif
