/* The C core's interface: plain C, called through ctypes. Integer networks: integer/program.h.
 *
 * Every table of a unit comes from sudonet.Staircase; nothing here knows how a
 * threshold or a value is computed.
 */
#ifndef SUDONET_H
#define SUDONET_H

#include <stdint.h>

#define SUDO_ABI 5

#if defined(_WIN32)
#define SUDO_EXPORT __declspec(dllexport)
#else
#define SUDO_EXPORT __attribute__((visibility("default")))
#endif

enum sudo_underlying {
    SUDO_TANH = 0,
    SUDO_SIGMOID = 1,
    SUDO_HARDTANH = 2,
    SUDO_RELU6 = 3,
    SUDO_RELU = 4,
    SUDO_LINEAR = 5
};

/* An activation. count == 0: the smooth function itself, with no tables. */
typedef struct {
    int32_t underlying;
    int32_t rectified;
    int32_t count;           /* thresholds; there is one value more */
    const float *thresholds; /* ascending */
    const float *values;
    /* The estimate: position = scale * f + offset, clamped to low..high, where f is
     * sigmoid(stretch * x), or x itself if stretch is 0; plateau = ceil(position). It is exact
     * unless the position is within `tolerance` of an integer. The value is
     * (plateau - centre) * factor / span, and at least 0 if rectified. */
    float stretch, scale, offset, low, high, tolerance;
    float centre, factor, span;
} sudo_unit;

enum sudo_path { SUDO_PATH_PORTABLE = 0, SUDO_PATH_AVX2 = 1, SUDO_PATH_AVX512 = 2 };

SUDO_EXPORT int32_t sudo_abi(void);

/* Where a structure has a field, and its bytes. An empty field stands for the structure itself. */
typedef struct {
    const char *structure, *field;
    int32_t offset, size;
} sudo_layout;

/* All fields of all structures of the interface; the last entry is NULL. */
SUDO_EXPORT const sudo_layout *sudo_layouts(void);

/* Whether this CPU runs the path. */
SUDO_EXPORT int32_t sudo_supports(int32_t path);

#define SUDO_MAX_LAYERS 64

enum sudo_loss { SUDO_SQUARED_ERROR = 0, SUDO_CROSS_ENTROPY = 1 };
enum sudo_optimiser { SUDO_ADAM = 0, SUDO_MOMENTUM = 1 };

/* A network in training. Layer l has sizes[l + 1] rows of sizes[l] + 1 weights, the last
 * of them the bias, padded with zeros to a multiple of 16; layers follow one another. */
typedef struct {
    int32_t layers;
    const int32_t *sizes; /* layers + 1 */
    const sudo_unit *units;
    int32_t lanes; /* the batch size padded to a multiple of 16 */
    int32_t loss, optimiser;
    double rate, beta1, beta2, epsilon; /* beta1 is the momentum where there is no Adam */
    double beta1_power, beta2_power;    /* beta1 and beta2 to the power of step; 1 at the start */
    float *weights, *moment1, *moment2;
    int64_t step;     /* completed steps */
    int64_t diverged; /* the step after which the loss was not finite, or -1 */
} sudo_network;

SUDO_EXPORT void sudo_forward(int32_t path, const sudo_unit *unit, const float *x, float *y,
                              int64_t n, int32_t threads);
SUDO_EXPORT void sudo_backward(int32_t path, const sudo_unit *unit, const float *grad,
                               const float *x, float *out, int64_t n, int32_t threads);

/* Floats that one thread of training or prediction needs as scratch. */
SUDO_EXPORT int64_t sudo_scratch(const sudo_network *net);
/* Floats that a prepared minibatch takes. */
SUDO_EXPORT int64_t sudo_prepared(int32_t in, int32_t out, int32_t lanes);
/* Lays out the minibatches of `steps` steps for sudo_train: order has `batch` samples for each
 * step, of which the first counts[s] are used. */
SUDO_EXPORT void sudo_prepare(int32_t path, const float *x, const float *t, int32_t in, int32_t out,
                              int32_t lanes, const int32_t *order, const int32_t *counts,
                              int32_t batch, int32_t steps, float *buffer);
/* Trains networks of one shape on the same minibatches; losses is networks x steps. */
SUDO_EXPORT void sudo_train(int32_t path, sudo_network *nets, int32_t networks, const float *buffer,
                            const int32_t *counts, int32_t steps, float *losses, float *scratch);
SUDO_EXPORT void sudo_predict(int32_t path, const sudo_network *net, const float *x, int64_t n,
                              float *out, float *scratch);

#endif
