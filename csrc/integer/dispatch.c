/* The exported functions of integer networks: choice of the path, and batches in chunks. */
#include "integer/program.h"

#if SUDO_AMX
#include <cpuid.h>
#include <pthread.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#define DECLARE(suffix)                                                                      \
    void sudo_integer_run##suffix(const sudo_program *, const uint8_t *, uint8_t *, int64_t, \
                                  int64_t, int32_t, uint8_t *[2], uint8_t *);
DECLARE(_portable)
#if SUDO_X86
DECLARE(_avx2)
DECLARE(_vnni)
#endif

#if SUDO_AMX
DECLARE(_amx)
int sudo_amx_self_test(void);

/* Whether the CPU has AMX-INT8, and the operating system saves tiles (bits 17 and 18 of XCR0) and
 * permits this process to use them. */
static int tiles_allowed(void) {
#if !defined(SUDO_TILES)
    unsigned a, b, c, d, enabled, upper;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3) return 0;
    __asm__ volatile("xgetbv" : "=a"(enabled), "=d"(upper) : "c"(0));
    if ((enabled >> 17 & 3) != 3) return 0;
#if defined(__linux__)
    if (syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18)) return 0;
#endif
#endif
    return 1;
}

static int amx_works;

static void test_amx(void) {
    amx_works = sudo_supports(SUDO_PATH_AVX512) && __builtin_cpu_supports("avx512vnni") &&
                tiles_allowed() && sudo_amx_self_test();
}

int32_t sudo_integer_amx(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, test_amx);
    return amx_works;
}
#else
int32_t sudo_integer_amx(void) { return 0; }
#endif

int32_t sudo_integer_kernels(int32_t path) {
#if SUDO_X86
    if (path == SUDO_PATH_AMX && sudo_integer_amx()) return path;
    if (path >= SUDO_PATH_AVX512)
        return __builtin_cpu_supports("avx512vnni") ? SUDO_PATH_AVX512 : SUDO_PATH_AVX2;
    return path;
#else
    (void)path;
    return SUDO_PATH_PORTABLE;
#endif
}

static int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t chunk(const sudo_program *program, int64_t batch) {
    return batch < program->max_examples ? batch : program->max_examples;
}

static int64_t buffer_size(const sudo_program *program, int64_t batch) {
    return padded(chunk(program, batch) * program->example_stride + SUDO_SLACK);
}

int64_t sudo_integer_scratch(const sudo_program *program, int64_t batch) {
    return 2 * buffer_size(program, batch) + padded(program->scratch_bytes + SUDO_SLACK) + 64;
}

static int64_t bytes_of(int32_t type, int32_t channels, int32_t rows, int32_t columns) {
    static const int64_t sizes[] = {1, 2, 2, 4, 8};
    return sizes[type] * channels * rows * columns;
}

void sudo_integer_run(const sudo_call *call) {
    const sudo_program *program = call->program;
    const sudo_step *first = program->steps, *last = program->steps + program->step_count - 1;
    const int64_t stride_x =
        bytes_of(first->type_in, first->channels_in, first->rows_in, first->columns_in);
    const int64_t stride_out =
        bytes_of(last->type_out, last->channels_out, last->rows_out, last->columns_out);
    uint8_t *scratch = (uint8_t *)call->scratch + -(uintptr_t)call->scratch % 64;
    uint8_t *buffers[2] = {scratch, scratch + buffer_size(program, call->batch)};
    uint8_t *windows = scratch + 2 * buffer_size(program, call->batch);
    const int64_t max_examples = chunk(program, call->batch);
    for (int64_t begin = 0; begin < call->batch; begin += max_examples) {
        const int32_t examples =
            (int32_t)(call->batch - begin < max_examples ? call->batch - begin : max_examples);
        const uint8_t *x = (const uint8_t *)call->x + begin * stride_x;
        uint8_t *out = (uint8_t *)call->out + begin * stride_out;
#define RUN(suffix) \
    sudo_integer_run##suffix(program, x, out, stride_x, stride_out, examples, buffers, windows)
        switch (sudo_integer_kernels(call->path)) {
#if SUDO_AMX
        case SUDO_PATH_AMX: RUN(_amx); break;
#endif
#if SUDO_X86
        case SUDO_PATH_AVX512: RUN(_vnni); break;
        case SUDO_PATH_AVX2: RUN(_avx2); break;
#endif
        default: RUN(_portable);
        }
    }
}
