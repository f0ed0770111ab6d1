/* The exported function of integer networks: which path, and how many examples at a time. */
#include "integer.h"
#include "target.h"

#define DECLARE(suffix) \
    void sudo_integer_run##suffix(const sudo_program *, const uint8_t *, uint8_t *, int64_t, int64_t, int32_t, uint8_t *[2], uint8_t *);
DECLARE(_portable)
#if SUDO_X86
DECLARE(_avx2)
DECLARE(_vnni)
#endif

int32_t sudo_integer_kernels(int32_t path) {
#if SUDO_X86
    if (path == SUDO_PATH_AVX512) return __builtin_cpu_supports("avx512vnni") ? SUDO_PATH_AVX512 : SUDO_PATH_AVX2;
    return path;
#else
    (void)path;
    return SUDO_PATH_PORTABLE;
#endif
}

static int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t chunk(const sudo_program *program, int64_t batch) {
    return batch < program->examples ? batch : program->examples;
}

static int64_t buffer_size(const sudo_program *program, int64_t batch) {
    return padded(chunk(program, batch) * program->stride + SUDO_SLACK);
}

int64_t sudo_integer_scratch(const sudo_program *program, int64_t batch) {
    return 2 * buffer_size(program, batch) + padded(program->windows + SUDO_SLACK) + 64;
}

static int64_t bytes_of(int32_t type, int32_t channels, int32_t rows, int32_t columns) {
    static const int64_t sizes[] = {1, 2, 2, 4, 8};
    return sizes[type] * channels * rows * columns;
}

void sudo_integer_run(const sudo_call *call) {
    const sudo_program *program = call->program;
    const sudo_step *first = program->step, *last = program->step + program->steps - 1;
    const int64_t stride_x = bytes_of(first->type_in, first->channels_in, first->rows_in, first->columns_in);
    const int64_t stride_out = bytes_of(last->type_out, last->channels_out, last->rows_out, last->columns_out);
    uint8_t *scratch = (uint8_t *)call->scratch + -(uintptr_t)call->scratch % 64;
    uint8_t *buffers[2] = {scratch, scratch + buffer_size(program, call->batch)};
    uint8_t *windows = scratch + 2 * buffer_size(program, call->batch);
    const int64_t most = chunk(program, call->batch);
    for (int64_t begin = 0; begin < call->batch; begin += most) {
        const int32_t examples = (int32_t)(call->batch - begin < most ? call->batch - begin : most);
        const uint8_t *x = (const uint8_t *)call->x + begin * stride_x;
        uint8_t *out = (uint8_t *)call->out + begin * stride_out;
#define RUN(suffix) sudo_integer_run##suffix(program, x, out, stride_x, stride_out, examples, buffers, windows)
        switch (sudo_integer_kernels(call->path)) {
#if SUDO_X86
        case SUDO_PATH_AVX512: RUN(_vnni); break;
        case SUDO_PATH_AVX2: RUN(_avx2); break;
#endif
        default: RUN(_portable);
        }
    }
}
