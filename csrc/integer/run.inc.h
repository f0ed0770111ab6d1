/* Runs an integer network. A file that includes this defines, for its instruction set:
 * TILE, the rows of a tile; prepare, what nibbles need to know of windows; sums_of, the sums of
 * a tile; codes_of, their codes by thresholds; shared_by_eight, codes by shared thresholds where
 * there is a fast way (it says whether); and SUDO_SUFFIX, what the function's name ends in.
 * If it must, also set_up and clean_up, before and after a product, and tile_rows, how many of the
 * TILE rows are taken for it.
 */
#ifndef tile_rows
#define set_up(part, w) ((void)0)
#define clean_up(part, w) ((void)0)
#define tile_rows(part, w) TILE
#endif

#define JOIN_AGAIN(name, suffix) name##suffix
#define JOIN(name, suffix) JOIN_AGAIN(name, suffix)

static const int32_t SIZES[] = {1, 2, 2, 4, 8};

static void scores(const sudo_after *after, int32_t first, int32_t outputs, const int32_t *sums, int64_t *out) {
    for (int32_t i = 0; i < outputs; i++) out[i] = fixed_point(sums[i], after->factor[first + i], after->constant[first + i]);
}

static void shared(const sudo_after *after, int32_t first, int32_t outputs, const int32_t *sums, uint8_t *out) {
    uint8_t codes[2 * SUDO_PANEL_OUTPUTS];
    if (!shared_by_eight(after, first, outputs, sums, codes)) shared_codes(after, first, outputs, sums, codes);
    if (after->doubled)
        for (int32_t i = 0; i < outputs; i++) codes[i] = (uint8_t)(codes[i] ? 2 * codes[i] - 1 : 0);
    memcpy(out, codes, (size_t)outputs);
}

static void correct(const int32_t *taken, int32_t outputs, int32_t *sums) {
    for (int32_t i = 0; i < outputs; i++) sums[i] = 2 * sums[i] - taken[i];
}

/* Panel by panel, so that its weights stay close while all windows meet them; for a single
 * window two panels at a time, whose sums take the place of a second row's. */
static void multiply(const sudo_part *part, int32_t type, windows *w) {
    if (part->form == SUDO_NIBBLES) prepare(part, w);
    set_up(part, w);
    const int32_t tall = tile_rows(part, w);
    const int32_t most = w->count == 1 && part->form != SUDO_LINES ? 2 * SUDO_PANEL_OUTPUTS : SUDO_PANEL_OUTPUTS;
    for (int32_t first = 0; first < part->outputs; first += most) {
        const int32_t outputs = part->outputs - first < most ? part->outputs - first : most;
        for (int32_t row = 0; row < w->count; row += tall) {
            const int32_t rows = w->count - row < tall ? w->count - row : tall;
            panel_sums sums[TILE] __attribute__((aligned(64)));
            if (part->form == SUDO_LINES) lines(part, type, w, first, outputs, row, rows, sums);
            else sums_of(part, w, first, outputs, row, rows, sums);
            if (part->corrections)
                for (int32_t i = 0; i < rows; i++) correct(w->corrections[row + i] + first, outputs, sums[i]);
            if (part->after.kind <= SUDO_GUESSED) {
                codes_of(&part->after, first, outputs, sums, rows, w->out + row);
                continue;
            }
            for (int32_t i = 0; i < rows; i++) {
                if (part->after.kind == SUDO_SHARED) shared(&part->after, first, outputs, sums[i], w->out[row + i] + first);
                else scores(&part->after, first, outputs, sums[i], (int64_t *)w->out[row + i] + first);
            }
        }
    }
    clean_up(part, w);
}

/* The channels of a part, with zeros around them; those are there already. */
static void frame(const sudo_step *step, const sudo_part *part, const uint8_t *in, uint8_t *to) {
    const int64_t size = SIZES[step->type_in], pixel = step->channels_in * size, run = part->inputs * size;
    in += part->first_in * size;
    to += (part->top * (int64_t)part->width + part->left) * run;
    for (int32_t y = 0; y < step->rows_in; y++, in += step->columns_in * pixel, to += part->width * run) {
        if (pixel == run) memcpy(to, in, (size_t)(step->columns_in * pixel));
        else
            for (int64_t x = 0; x < step->columns_in; x++) memcpy(to + x * run, in + x * pixel, (size_t)run);
    }
}

/* The window of one output, run by run. Whole pieces of 16 bytes are copied: what they write
 * too far is written again by the next run or lies in the slack, and meets weights of 0. */
INLINE void gather(const int64_t *starts, int32_t runs, int64_t run, const uint8_t *image, uint8_t *to) {
    for (int32_t r = 0; r < runs; r++, to += run) {
        const uint8_t *from = image + starts[r];
        memcpy(to, from, 16);
        for (int64_t i = 16; i < run; i += 16) {
            memcpy(to + i, from + i, 16);
            __asm__ volatile("" : "+r"(i)); /* or it becomes a call, which is slow for a few bytes */
        }
    }
}

/* Examples that are windows as they lie. */
static void dense(const sudo_step *step, const uint8_t *in, int64_t stride_in, uint8_t *out, int64_t stride_out, int32_t examples) {
    windows w;
    w.stride = stride_in;
    for (int32_t begin = 0; begin < examples; begin += SUDO_ROWS) {
        w.x = in + begin * stride_in;
        w.count = examples - begin < SUDO_ROWS ? examples - begin : SUDO_ROWS;
        for (int32_t i = 0; i < w.count; i++) w.out[i] = out + (begin + i) * stride_out;
        multiply(step->part, step->type_in, &w);
    }
}

static void affine(const sudo_step *step, const uint8_t *in, int64_t stride_in, uint8_t *out, int64_t stride_out, int32_t examples, uint8_t *scratch) {
    const int64_t size = SIZES[step->type_in], size_out = SIZES[step->type_out];
    if (step->part->direct) {
        dense(step, in, stride_in, out, stride_out, examples);
        return;
    }
    for (int32_t p = 0; p < step->parts; p++) {
        const sudo_part *part = step->part + p;
        const sudo_axis *rows = &part->rows, *columns = &part->columns;
        const int64_t width = (part->terms * size + 15) / 16 * 16;
        uint8_t *framed = scratch + (part->windows * width + SUDO_SLACK + 63) / 64 * 64;
        if (part->framed) memset(framed, 0, (size_t)(part->height * (int64_t)part->width * part->inputs * size));
        int32_t example = 0, row = 0, column = 0;
        while (example < examples) {
            windows w;
            w.x = scratch;
            w.stride = width;
            for (w.count = 0; w.count < part->windows && example < examples; w.count++) {
                const uint8_t *image = part->framed ? framed : in + example * stride_in;
                if (part->framed && !row && !column) frame(step, part, in + example * stride_in, framed);
                gather(part->starts, part->runs, part->run, image + row * rows->stride + column * columns->stride, scratch + w.count * width);
                const int64_t y = rows->first + (int64_t)row * rows->step, x = columns->first + (int64_t)column * columns->step;
                w.out[w.count] = out + example * stride_out + ((y * step->columns_out + x) * step->channels_out + part->first_out) * size_out;
                if (part->corrections)
                    w.corrections[w.count] = part->corrections + ((int64_t)rows->classes[row] * part->column_classes + columns->classes[column]) * part->outputs;
                if (++column == columns->count) {
                    column = 0;
                    if (++row == rows->count) row = 0, example++;
                }
            }
            multiply(part, step->type_in, &w);
        }
    }
}

/* What one tap of a pool brings to a row of outputs, `step` inputs apart. */
#define POOLS(type)                                                                                     \
    static void add_##type(int32_t *sums, const void *in, int32_t columns, int64_t step, int32_t n) {   \
        const type *x = in;                                                                             \
        for (int32_t c = 0; c < columns; c++, sums += n, x += step)                                     \
            for (int32_t i = 0; i < n; i++) sums[i] += x[i];                                            \
    }                                                                                                   \
    static void raise_##type(int32_t *sums, const void *in, int32_t columns, int64_t step, int32_t n) { \
        const type *x = in;                                                                             \
        for (int32_t c = 0; c < columns; c++, sums += n, x += step)                                     \
            for (int32_t i = 0; i < n; i++) sums[i] = sums[i] > x[i] ? sums[i] : x[i];                  \
    }                                                                                                   \
    static void narrow_##type(void *out, const int32_t *sums, int64_t n) {                              \
        for (int64_t i = 0; i < n; i++) ((type *)out)[i] = (type)sums[i];                               \
    }
POOLS(uint8_t)
POOLS(uint16_t)
POOLS(int16_t)
POOLS(int32_t)

typedef void taker(int32_t *, const void *, int32_t, int64_t, int32_t);
typedef void giver(void *, const int32_t *, int64_t);
static taker *const ADDERS[] = {add_uint8_t, add_uint16_t, add_int16_t, add_int32_t};
static taker *const RAISERS[] = {raise_uint8_t, raise_uint16_t, raise_int16_t, raise_int32_t};
static giver *const GIVERS[] = {narrow_uint8_t, narrow_uint16_t, narrow_int16_t, narrow_int32_t};

static void pool(const sudo_step *step, const uint8_t *in, uint8_t *out, int32_t *sums) {
    const int32_t channels = step->channels_in, stride = step->stride[1];
    const int64_t n = (int64_t)step->columns_out * channels, pixel = (int64_t)channels * SIZES[step->type_in];
    taker *const take = (step->kind == SUDO_MAX_POOL ? RAISERS : ADDERS)[step->type_in];
    for (int32_t row = 0; row < step->rows_out; row++, out += n * SIZES[step->type_out]) {
        for (int64_t i = 0; i < n; i++) sums[i] = step->lowest;
        for (int32_t i = 0; i < step->kernel[0]; i++) {
            const int64_t y = (int64_t)row * step->stride[0] - step->padding[0] + i;
            if (y < 0 || y >= step->rows_in) continue;
            for (int32_t j = 0; j < step->kernel[1]; j++) {
                const int32_t x = j - step->padding[1]; /* the input of column 0 */
                const int32_t first = x < 0 ? (-x + stride - 1) / stride : 0;
                int32_t end = step->columns_in > x ? (step->columns_in - x + stride - 1) / stride : 0;
                if (end > step->columns_out) end = step->columns_out;
                if (first < end)
                    take(sums + (int64_t)first * channels, in + (y * step->columns_in + x + (int64_t)first * stride) * pixel, end - first, (int64_t)stride * channels, channels);
            }
        }
        GIVERS[step->type_out](out, sums, n);
    }
}

#define TURN(type)                                                            \
    for (int64_t i = 0; i < inner; i++)                                       \
        for (int64_t j = 0; j < outer; j++)                                   \
            ((type *)out)[i * outer + j] = ((const type *)in)[j * inner + i];

/* From [outer][inner] to [inner][outer]. */
static void turn(const sudo_step *step, const uint8_t *restrict in, uint8_t *restrict out) {
    const int64_t size = SIZES[step->type_in], pixels = (int64_t)step->rows_in * step->columns_in;
    const int64_t outer = step->channels_first ? step->channels_in : pixels;
    const int64_t inner = step->channels_first ? pixels : step->channels_in;
    if (outer == 1 || inner == 1) memcpy(out, in, (size_t)(outer * inner * size));
    else if (size == 1) TURN(uint8_t)
    else if (size == 2) TURN(uint16_t)
    else if (size == 4) TURN(uint32_t)
    else TURN(uint64_t)
}

void JOIN(sudo_integer_run, SUDO_SUFFIX)(const sudo_program *program, const uint8_t *x, uint8_t *out, int64_t stride_x, int64_t stride_out, int32_t examples, uint8_t *buffers[2], uint8_t *scratch) {
    for (int32_t i = 0; i < program->steps; i++) {
        const sudo_step *step = program->step + i;
        const int last = i == program->steps - 1;
        uint8_t *to = last ? out : buffers[i % 2];
        const int64_t stride_to = last ? stride_out : program->stride;
        if (step->kind == SUDO_AFFINE) affine(step, x, stride_x, to, stride_to, examples, scratch);
        else
            for (int64_t e = 0; e < examples; e++) {
                if (step->kind == SUDO_TURN) turn(step, x + e * stride_x, to + e * stride_to);
                else pool(step, x + e * stride_x, to + e * stride_to, (int32_t *)scratch);
            }
        x = to;
        stride_x = stride_to;
    }
}
