/* Runs an integer network. A file that includes this defines, for its instruction set:
 *
 *     SUDO_SUFFIX         the suffix of the function's name
 *     TILE                the most windows of a tile
 *     tile_sums           the sums of a tile
 *     sum_inputs          the sums of the windows' inputs, which nibbles need
 *     threshold_codes     codes by thresholds of each output
 *     shared_codes_simd   codes by shared thresholds; returns 0 where it has no fast way
 *
 * and optionally begin_product and end_product, called around a product, with tile_rows, the
 * windows of a tile in this product.
 */
#ifndef tile_rows
#define begin_product(part, w) ((void)0)
#define end_product(part, w) ((void)0)
#define tile_rows(part, w) TILE
#endif

#define JOIN_EXPANDED(name, suffix) name##suffix
#define JOIN(name, suffix) JOIN_EXPANDED(name, suffix)

static const int32_t SIZES[] = {1, 2, 2, 4, 8};

static void scores_epilogue(const sudo_epilogue *epilogue, int32_t first, int32_t outputs,
                            const int32_t *sums, int64_t *out) {
    for (int32_t i = 0; i < outputs; i++)
        out[i] = fixed_point(sums[i], epilogue->factor[first + i], epilogue->constant[first + i]);
}

static void shared_epilogue(const sudo_epilogue *epilogue, int32_t first, int32_t outputs,
                            const int32_t *sums, uint8_t *out) {
    uint8_t codes[2 * SUDO_PANEL_OUTPUTS];
    if (!shared_codes_simd(epilogue, first, outputs, sums, codes))
        shared_codes(epilogue, first, outputs, sums, codes);
    if (epilogue->odd_codes)
        for (int32_t i = 0; i < outputs; i++) codes[i] = (uint8_t)(codes[i] ? 2 * codes[i] - 1 : 0);
    memcpy(out, codes, (size_t)outputs);
}

static void apply_corrections(const int32_t *corrections, int32_t outputs, int32_t *sums) {
    for (int32_t i = 0; i < outputs; i++) sums[i] = 2 * sums[i] - corrections[i];
}

/* Panel by panel: its weights stay in cache for all windows. A single window takes two panels at a
 * time, and their sums are stored as those of two rows. */
static void multiply(const sudo_part *part, int32_t type, windows *w) {
    if (part->weight_layout == SUDO_PANELS_INT4) sum_inputs(part, w);
    begin_product(part, w);
    const int32_t max_rows = tile_rows(part, w);
    const int32_t max_outputs = w->count == 1 && part->weight_layout != SUDO_ROW_MAJOR
                                    ? 2 * SUDO_PANEL_OUTPUTS
                                    : SUDO_PANEL_OUTPUTS;
    for (int32_t first = 0; first < part->outputs; first += max_outputs) {
        const int32_t outputs =
            part->outputs - first < max_outputs ? part->outputs - first : max_outputs;
        for (int32_t row = 0; row < w->count; row += max_rows) {
            const int32_t rows = w->count - row < max_rows ? w->count - row : max_rows;
            panel_sums sums[TILE] __attribute__((aligned(64)));
            if (part->weight_layout == SUDO_ROW_MAJOR)
                sums_row_major(part, type, w, first, outputs, row, rows, sums);
            else tile_sums(part, w, first, outputs, row, rows, sums);
            if (part->corrections)
                for (int32_t i = 0; i < rows; i++)
                    apply_corrections(w->corrections[row + i] + first, outputs, sums[i]);
            if (part->epilogue.kind <= SUDO_ESTIMATED) {
                threshold_codes(&part->epilogue, first, outputs, sums, rows, w->out + row);
                continue;
            }
            for (int32_t i = 0; i < rows; i++) {
                if (part->epilogue.kind == SUDO_SHARED_THRESHOLDS)
                    shared_epilogue(&part->epilogue, first, outputs, sums[i],
                                    w->out[row + i] + first);
                else
                    scores_epilogue(&part->epilogue, first, outputs, sums[i],
                                    (int64_t *)w->out[row + i] + first);
            }
        }
    }
    end_product(part, w);
}

/* Copies the channels of a part between zeros, which are there already. */
static void copy_padded(const sudo_step *step, const sudo_part *part, const uint8_t *in,
                        uint8_t *to) {
    const int64_t size = SIZES[step->type_in];
    const int64_t pixel = step->channels_in * size, padded_pixel = part->inputs * size;
    in += part->first_in * size;
    to += (part->padding_top * (int64_t)part->padded_columns + part->padding_left) * padded_pixel;
    for (int32_t y = 0; y < step->rows_in;
         y++, in += step->columns_in * pixel, to += part->padded_columns * padded_pixel) {
        if (pixel == padded_pixel) memcpy(to, in, (size_t)(step->columns_in * pixel));
        else
            for (int64_t x = 0; x < step->columns_in; x++)
                memcpy(to + x * padded_pixel, in + x * pixel, (size_t)padded_pixel);
    }
}

/* Gathers the window of one output (im2col), segment by segment, in pieces of 16 bytes. Bytes
 * beyond a segment are overwritten by the next one or are in the slack, and their weights are 0. */
INLINE void gather_window(const int64_t *offsets, int32_t segments, int64_t bytes,
                          const uint8_t *image, uint8_t *to) {
    for (int32_t s = 0; s < segments; s++, to += bytes) {
        const uint8_t *from = image + offsets[s];
        memcpy(to, from, 16);
        for (int64_t i = 16; i < bytes; i += 16) {
            memcpy(to + i, from + i, 16);
            /* Keeps the loop: a call of memcpy is slow for few bytes. */
            __asm__ volatile("" : "+r"(i));
        }
    }
}

/* A dense layer: each example is a window, in place. */
static void dense(const sudo_step *step, const uint8_t *in, int64_t stride_in, uint8_t *out,
                  int64_t stride_out, int32_t examples) {
    windows w;
    w.stride = stride_in;
    for (int32_t begin = 0; begin < examples; begin += SUDO_MAX_WINDOWS) {
        w.x = in + begin * stride_in;
        w.count = examples - begin < SUDO_MAX_WINDOWS ? examples - begin : SUDO_MAX_WINDOWS;
        for (int32_t i = 0; i < w.count; i++) w.out[i] = out + (begin + i) * stride_out;
        multiply(step->parts, step->type_in, &w);
    }
}

static void affine(const sudo_step *step, const uint8_t *in, int64_t stride_in, uint8_t *out,
                   int64_t stride_out, int32_t examples, uint8_t *scratch) {
    const int64_t size = SIZES[step->type_in], size_out = SIZES[step->type_out];
    if (step->parts->direct) {
        dense(step, in, stride_in, out, stride_out, examples);
        return;
    }
    for (int32_t p = 0; p < step->part_count; p++) {
        const sudo_part *part = step->parts + p;
        const sudo_axis *rows = &part->rows, *columns = &part->columns;
        const int64_t width = (part->terms * size + 15) / 16 * 16;
        uint8_t *padded_image = scratch + (part->max_windows * width + SUDO_SLACK + 63) / 64 * 64;
        const int64_t pixels = part->padded_rows * (int64_t)part->padded_columns;
        if (part->padded) memset(padded_image, 0, (size_t)(pixels * part->inputs * size));
        int32_t example = 0, row = 0, column = 0;
        while (example < examples) {
            windows w;
            w.x = scratch;
            w.stride = width;
            for (w.count = 0; w.count < part->max_windows && example < examples; w.count++) {
                const uint8_t *image = part->padded ? padded_image : in + example * stride_in;
                if (part->padded && !row && !column)
                    copy_padded(step, part, in + example * stride_in, padded_image);
                gather_window(part->segment_offsets, part->segments, part->segment_bytes,
                              image + row * rows->stride + column * columns->stride,
                              scratch + w.count * width);
                const int64_t y = rows->first + (int64_t)row * rows->step;
                const int64_t x = columns->first + (int64_t)column * columns->step;
                w.out[w.count] =
                    out + example * stride_out +
                    ((y * step->columns_out + x) * step->channels_out + part->first_out) * size_out;
                if (part->corrections)
                    w.corrections[w.count] =
                        part->corrections + ((int64_t)rows->classes[row] * part->column_classes +
                                             columns->classes[column]) *
                                                part->outputs;
                if (++column == columns->count) {
                    column = 0;
                    if (++row == rows->count) row = 0, example++;
                }
            }
            multiply(part, step->type_in, &w);
        }
    }
}

/* Adds one tap of a pool to a row of outputs, whose inputs are `step` apart. */
#define POOL_FUNCTIONS(type)                                                             \
    static void add_##type(int32_t *sums, const void *in, int32_t columns, int64_t step, \
                           int32_t n) {                                                  \
        const type *x = in;                                                              \
        for (int32_t c = 0; c < columns; c++, sums += n, x += step)                      \
            for (int32_t i = 0; i < n; i++) sums[i] += x[i];                             \
    }                                                                                    \
    static void max_##type(int32_t *sums, const void *in, int32_t columns, int64_t step, \
                           int32_t n) {                                                  \
        const type *x = in;                                                              \
        for (int32_t c = 0; c < columns; c++, sums += n, x += step)                      \
            for (int32_t i = 0; i < n; i++) sums[i] = sums[i] > x[i] ? sums[i] : x[i];   \
    }                                                                                    \
    static void narrow_##type(void *out, const int32_t *sums, int64_t n) {               \
        for (int64_t i = 0; i < n; i++) ((type *)out)[i] = (type)sums[i];                \
    }
POOL_FUNCTIONS(uint8_t)
POOL_FUNCTIONS(uint16_t)
POOL_FUNCTIONS(int16_t)
POOL_FUNCTIONS(int32_t)

typedef void accumulate_function(int32_t *, const void *, int32_t, int64_t, int32_t);
typedef void narrow_function(void *, const int32_t *, int64_t);
static accumulate_function *const ADD[] = {add_uint8_t, add_uint16_t, add_int16_t, add_int32_t};
static accumulate_function *const MAX[] = {max_uint8_t, max_uint16_t, max_int16_t, max_int32_t};
static narrow_function *const NARROW[] = {narrow_uint8_t, narrow_uint16_t, narrow_int16_t,
                                          narrow_int32_t};

static void pool(const sudo_step *step, const uint8_t *in, uint8_t *out, int32_t *sums) {
    const int32_t channels = step->channels_in, stride = step->stride[1];
    const int64_t n = (int64_t)step->columns_out * channels;
    const int64_t pixel = (int64_t)channels * SIZES[step->type_in];
    accumulate_function *const accumulate =
        (step->kind == SUDO_MAX_POOL ? MAX : ADD)[step->type_in];
    for (int32_t row = 0; row < step->rows_out; row++, out += n * SIZES[step->type_out]) {
        for (int64_t i = 0; i < n; i++) sums[i] = step->initial;
        for (int32_t i = 0; i < step->kernel[0]; i++) {
            const int64_t y = (int64_t)row * step->stride[0] - step->padding[0] + i;
            if (y < 0 || y >= step->rows_in) continue;
            for (int32_t j = 0; j < step->kernel[1]; j++) {
                const int32_t x = j - step->padding[1]; /* the input of column 0 */
                const int32_t first = x < 0 ? (-x + stride - 1) / stride : 0;
                int32_t end =
                    step->columns_in > x ? (step->columns_in - x + stride - 1) / stride : 0;
                if (end > step->columns_out) end = step->columns_out;
                if (first < end)
                    accumulate(sums + (int64_t)first * channels,
                               in + (y * step->columns_in + x + (int64_t)first * stride) * pixel,
                               end - first, (int64_t)stride * channels, channels);
            }
        }
        NARROW[step->type_out](out, sums, n);
    }
}

#define TRANSPOSE(type)                     \
    for (int64_t i = 0; i < inner; i++)     \
        for (int64_t j = 0; j < outer; j++) \
            ((type *)out)[i * outer + j] = ((const type *)in)[j * inner + i];

/* From [outer][inner] to [inner][outer]. */
static void transpose(const sudo_step *step, const uint8_t *restrict in, uint8_t *restrict out) {
    const int64_t size = SIZES[step->type_in], pixels = (int64_t)step->rows_in * step->columns_in;
    const int64_t outer = step->channels_first ? step->channels_in : pixels;
    const int64_t inner = step->channels_first ? pixels : step->channels_in;
    if (outer == 1 || inner == 1) memcpy(out, in, (size_t)(outer * inner * size));
    else if (size == 1) TRANSPOSE(uint8_t)
    else if (size == 2) TRANSPOSE(uint16_t)
    else if (size == 4) TRANSPOSE(uint32_t)
    else TRANSPOSE(uint64_t)
}

void JOIN(sudo_integer_run, SUDO_SUFFIX)(const sudo_program *program, const uint8_t *x,
                                         uint8_t *out, int64_t stride_x, int64_t stride_out,
                                         int32_t examples, uint8_t *buffers[2], uint8_t *scratch) {
    for (int32_t i = 0; i < program->step_count; i++) {
        const sudo_step *step = program->steps + i;
        const int last = i == program->step_count - 1;
        uint8_t *to = last ? out : buffers[i % 2];
        const int64_t stride_to = last ? stride_out : program->example_stride;
        if (step->kind == SUDO_AFFINE) affine(step, x, stride_x, to, stride_to, examples, scratch);
        else
            for (int64_t e = 0; e < examples; e++) {
                if (step->kind == SUDO_TRANSPOSE)
                    transpose(step, x + e * stride_x, to + e * stride_to);
                else pool(step, x + e * stride_x, to + e * stride_to, (int32_t *)scratch);
            }
        x = to;
        stride_x = stride_to;
    }
}
