/* Upper bounds of integer kernels on this core, for integer.py: products of bytes in a second with
 * an instruction set, and the time to read weights from the cache that holds them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define FASTEST(best, call)                      \
    for (int round = 0; round < 2000; round++) { \
        const double begun = now();              \
        call;                                    \
        const double taken = now() - begun;      \
        if (taken < best) best = taken;          \
    }

#if defined(__x86_64__)
#define EACH_REGISTER ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"

static void vnni(int n) {
    for (int i = 0; i < n; i++)
        __asm__ volatile(EACH_REGISTER "vpdpbusd %%zmm14, %%zmm15, %%zmm\\r\n .endr" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9", "xmm10", "xmm11");
}

/* Products of bytes and 16-bit sums of them: the least work with AVX2. */
static void avx2(int n) {
    for (int i = 0; i < n; i++)
        __asm__ volatile(
            EACH_REGISTER
            "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n vpaddw %%ymm12, %%ymm\\r, %%ymm\\r\n .endr" ::
                : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                  "xmm10", "xmm11", "xmm12");
}

static void read_all(const char *from, const char *end) {
    for (; from < end; from += 256)
        __asm__ volatile(".irp at,0,32,64,96,128,160,192,224\n vmovdqa \\at(%0), %%ymm0\n .endr"
                         :
                         : "r"(from)
                         : "xmm0");
}
#endif

/* Products of bytes in a second with AVX512-VNNI (2) or AVX2 (1); 0 where it is unknown. */
double products(int path) {
    double best = 1e9;
#if defined(__x86_64__)
    if (path == 2 && __builtin_cpu_supports("avx512vnni")) {
        FASTEST(best, vnni(1000))
        return 12 * 64 * 1000 / best;
    }
    if (path == 1 && __builtin_cpu_supports("avx2")) {
        FASTEST(best, avx2(1000))
        return 12 * 32 * 1000 / best;
    }
#endif
    (void)best;
    return 0;
}

/* Seconds to read so many bytes repeatedly; 0 where it is unknown. */
double reading(int64_t bytes) {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) return 0;
    const size_t n = (size_t)(bytes + 255) / 256 * 256;
    char *space = aligned_alloc(256, n);
    if (!space) return 0;
    memset(space, 1, n);
    double best = 1e9;
    FASTEST(best, read_all(space, space + n))
    free(space);
    return best;
#else
    (void)bytes;
    return 0;
#endif
}
