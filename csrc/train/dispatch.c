/* The exported functions of units and of training: path, threads, floating-point state. */
#include "common/target.h"
#include "sudonet.h"

#include <pthread.h>
#include <stddef.h>

#if SUDO_X86
#include <immintrin.h>
#endif

#define DECLARE(suffix)                                                                            \
    void sudo_forward##suffix(const sudo_unit *, const float *, float *, int64_t);                 \
    void sudo_backward##suffix(const sudo_unit *, const float *, const float *, float *, int64_t); \
    int64_t sudo_scratch##suffix(const sudo_network *);                                            \
    int64_t sudo_prepared##suffix(int32_t, int32_t, int32_t);                                      \
    void sudo_prepare##suffix(const float *, const float *, int32_t, int32_t, int32_t,             \
                              const int32_t *, const int32_t *, int32_t, int32_t, float *);        \
    void sudo_train##suffix(sudo_network *, int32_t, const float *, const int32_t *, int32_t,      \
                            float *, float *);                                                     \
    void sudo_predict##suffix(const sudo_network *, const float *, int64_t, float *, float *);
DECLARE(_portable)
#if SUDO_X86
DECLARE(_avx2)
DECLARE(_avx512)
#endif

/* Denormal results become 0. Denormal inputs stay, because a tiny x > 0 is above the threshold 0.
 * The caller's state is restored afterwards. */
static unsigned flush_denormal_results(void) {
#if SUDO_X86
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | _MM_FLUSH_ZERO_ON);
    return saved;
#else
    return 0;
#endif
}

/* In training, denormal inputs are 0 as well: they make a product a hundred times slower. */
static unsigned flush_denormals(void) {
    const unsigned saved = flush_denormal_results();
#if SUDO_X86
    _mm_setcsr(_mm_getcsr() | 0x0040 /* denormals are zeros */);
#endif
    return saved;
}

static void restore(unsigned saved) {
#if SUDO_X86
    _mm_setcsr(saved);
#else
    (void)saved;
#endif
}

typedef struct {
    int32_t path;
    const sudo_unit *unit;
    const float *grad, *x; /* grad is NULL: forward */
    float *out;
    int64_t n;
} job;

static void *run(void *argument) {
    const job *j = argument;
    const unsigned saved = flush_denormal_results();
    switch (j->path) {
#if SUDO_X86
    case SUDO_PATH_AVX512:
        if (j->grad) sudo_backward_avx512(j->unit, j->grad, j->x, j->out, j->n);
        else sudo_forward_avx512(j->unit, j->x, j->out, j->n);
        break;
    case SUDO_PATH_AVX2:
        if (j->grad) sudo_backward_avx2(j->unit, j->grad, j->x, j->out, j->n);
        else sudo_forward_avx2(j->unit, j->x, j->out, j->n);
        break;
#endif
    default:
        if (j->grad) sudo_backward_portable(j->unit, j->grad, j->x, j->out, j->n);
        else sudo_forward_portable(j->unit, j->x, j->out, j->n);
    }
    restore(saved);
    return NULL;
}

/* Below this many elements a thread costs more than it saves. */
#define GRAIN 131072
#define MAX_THREADS 64

static void run_threads(job whole, int32_t threads) {
    int64_t chunks = whole.n / GRAIN;
    if (chunks > threads) chunks = threads;
    if (chunks > MAX_THREADS) chunks = MAX_THREADS;
    if (chunks < 2) {
        run(&whole);
        return;
    }
    job jobs[MAX_THREADS];
    pthread_t workers[MAX_THREADS];
    int started[MAX_THREADS] = {0};
    const int64_t share = (whole.n / chunks + 63) / 64 * 64;
    for (int64_t i = 0; i < chunks; i++) {
        const int64_t begin = i * share;
        jobs[i] = whole;
        jobs[i].n = i == chunks - 1 ? whole.n - begin : share;
        jobs[i].x += begin;
        jobs[i].out += begin;
        if (whole.grad) jobs[i].grad += begin;
        if (i) started[i] = pthread_create(&workers[i], NULL, run, &jobs[i]) == 0;
    }
    run(&jobs[0]);
    for (int64_t i = 1; i < chunks; i++) {
        if (started[i]) pthread_join(workers[i], NULL);
        else run(&jobs[i]);
    }
}

void sudo_forward(int32_t path, const sudo_unit *unit, const float *x, float *y, int64_t n,
                  int32_t threads) {
    run_threads((job){path, unit, NULL, x, y, n}, threads);
}

void sudo_backward(int32_t path, const sudo_unit *unit, const float *grad, const float *x,
                   float *out, int64_t n, int32_t threads) {
    run_threads((job){path, unit, grad, x, out, n}, threads);
}

#if SUDO_X86
#define CHOOSE(path, function, ...)                              \
    ((path) == SUDO_PATH_AVX512 ? function##_avx512(__VA_ARGS__) \
     : (path) == SUDO_PATH_AVX2 ? function##_avx2(__VA_ARGS__)   \
                                : function##_portable(__VA_ARGS__))
#else
#define CHOOSE(path, function, ...) ((void)(path), function##_portable(__VA_ARGS__))
#endif

int64_t sudo_scratch(const sudo_network *net) { return sudo_scratch_portable(net); }

int64_t sudo_prepared(int32_t in, int32_t out, int32_t lanes) {
    return sudo_prepared_portable(in, out, lanes);
}

void sudo_prepare(int32_t path, const float *x, const float *t, int32_t in, int32_t out,
                  int32_t lanes, const int32_t *order, const int32_t *counts, int32_t batch,
                  int32_t steps, float *buffer) {
    CHOOSE(path, sudo_prepare, x, t, in, out, lanes, order, counts, batch, steps, buffer);
}

void sudo_train(int32_t path, sudo_network *nets, int32_t networks, const float *buffer,
                const int32_t *counts, int32_t steps, float *losses, float *scratch) {
    const unsigned saved = flush_denormals();
    CHOOSE(path, sudo_train, nets, networks, buffer, counts, steps, losses, scratch);
    restore(saved);
}

void sudo_predict(int32_t path, const sudo_network *net, const float *x, int64_t n, float *out,
                  float *scratch) {
    const unsigned saved = flush_denormals();
    CHOOSE(path, sudo_predict, net, x, n, out, scratch);
    restore(saved);
}
