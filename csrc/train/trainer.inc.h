/* Training small fully connected networks, for one instruction set.
 *
 * The vector lanes hold the batch: activations are [feature][lanes], one row for each
 * unit. Each layer's weights are [out][stride] with the bias as column `in`, so the
 * row after a layer's activations is all ones. Every product of a step,
 *
 *     forward   z[o][b] = sum_k w[o][k] y[k][b]
 *     backward  e[k][b] = sum_o w[o][k] d[o][b]
 *     gradient  g[o][k] = sum_b d[o][b] y[b][k]     (y transposed)
 *
 * has the same form, a broadcast coefficient times a row of vectors, and shares one
 * register-tiled kernel (product.inc.h). The gradient goes straight into the optimiser.
 */
#include "common/unit.h"
#include "train/product.inc.h"

INLINE void activate_specialised(sudo_unit u, int underlying, int rectified, float *y, float *d,
                                 int64_t n) {
    u.underlying = underlying;
    u.rectified = rectified;
    for (int64_t i = 0; i < n; i += W) {
        const V z = v_load(y + i);
        const sigmoid_parts h = fast_sigmoid_parts_at(&u, z);
        v_store(y + i, unit_value(&u, z, h, MAX_COMPARISONS_WITH_EXP));
        if (d) v_store(d + i, slope(&u, z, h)); /* the loss shows a NaN */
    }
}

/* Replaces the pre-activations y by outputs; d, if given, receives the slopes. */
static void activate(const sudo_unit *unit, float *y, float *d, int64_t n) {
#define CASE(kind, rectified)                              \
    activate_specialised(*unit, kind, rectified, y, d, n); \
    break
    switch (unit->underlying) {
    case SUDO_RELU: CASE(SUDO_RELU, 0);
    case SUDO_LINEAR: CASE(SUDO_LINEAR, 0);
    default: SPECIALISE(CASE)
    }
#undef CASE
}

typedef struct {
    V rate, beta1, beta2, one_minus_beta1, one_minus_beta2, epsilon, correction;
} step_constants;

static step_constants advance(sudo_network *net) {
    const int adam = net->optimiser == SUDO_ADAM;
    net->beta1_power *= net->beta1;
    net->beta2_power *= net->beta2;
    return (step_constants){
        .rate = v_set1((float)(adam ? net->rate / (1 - net->beta1_power) : net->rate)),
        .beta1 = v_set1((float)net->beta1),
        .beta2 = v_set1((float)net->beta2),
        .one_minus_beta1 = v_set1((float)(1 - net->beta1)),
        .one_minus_beta2 = v_set1((float)(1 - net->beta2)),
        .epsilon = v_set1((float)net->epsilon),
        .correction = v_set1((float)(adam ? 1 / sqrt(1 - net->beta2_power) : 1)),
    };
}

static void update(const sudo_network *net, const step_constants *k, const float *gradient,
                   int64_t offset, int64_t n) {
    float *w = net->weights + offset, *m = net->moment1 + offset;
    if (net->optimiser == SUDO_ADAM) {
        float *v = net->moment2 + offset;
        for (int64_t i = 0; i < n; i += W) {
            const V g = v_load(gradient + i);
            const V a = v_fma(k->beta1, v_load(m + i), v_mul(k->one_minus_beta1, g));
            const V b = v_fma(k->beta2, v_load(v + i), v_mul(k->one_minus_beta2, v_mul(g, g)));
            const V scale = v_fma(v_sqrt(b), k->correction, k->epsilon);
            v_store(m + i, a);
            v_store(v + i, b);
            v_store(w + i, v_sub(v_load(w + i), v_mul(k->rate, v_div(a, scale))));
        }
    } else {
        for (int64_t i = 0; i < n; i += W) {
            const V a = v_fma(k->beta1, v_load(m + i), v_load(gradient + i));
            v_store(m + i, a);
            v_store(w + i, v_sub(v_load(w + i), v_mul(k->rate, a)));
        }
    }
}

/* Mean loss of the batch; y becomes its derivative, which is 0 in the lanes from count on. */
static float squared_error(float *y, const float *target, int32_t outputs, int64_t lanes,
                           int32_t count) {
    const float scale = 2.0f / ((float)count * (float)outputs);
    double total = 0;
    for (int32_t o = 0; o < outputs; o++) {
        float *row = y + o * lanes;
        const float *target_row = target + o * lanes;
        V sum = v_zero();
        int64_t b = 0;
        for (; b + W <= count; b += W) {
            const V e = v_sub(v_load(row + b), v_load(target_row + b));
            sum = v_fma(e, e, sum);
            v_store(row + b, v_mul(e, v_set1(scale)));
        }
        float rest = 0;
        for (; b < count; b++) {
            const float e = row[b] - target_row[b];
            rest += e * e;
            row[b] = e * scale;
        }
        for (; b < lanes; b++) row[b] = 0;
        total += (double)v_sum(sum) + rest;
    }
    return (float)(total / ((double)count * outputs));
}

static float cross_entropy(float *y, const float *target, int32_t outputs, int64_t lanes,
                           int32_t count) {
    double total = 0;
    for (int64_t b = 0; b < lanes; b += W) {
        V highest = v_load(y + b), sum = v_zero(), target_margin = v_zero();
        for (int32_t o = 1; o < outputs; o++) highest = v_max(highest, v_load(y + o * lanes + b));
        for (int32_t o = 0; o < outputs; o++) {
            const V margin = v_sub(highest, v_load(y + o * lanes + b));
            const V e = v_exp_negative(margin);
            sum = v_add(sum, e);
            target_margin = v_fma(v_load(target + o * lanes + b), margin, target_margin);
            v_store(y + o * lanes + b, e);
        }
        float valid[W], sums[W], margins[W];
        v_store(sums, sum);
        v_store(margins, target_margin);
        for (int i = 0; i < W; i++) {
            valid[i] = b + i < count ? 1.0f / (float)count : 0.0f;
            if (b + i < count) total += (double)logf(sums[i]) + margins[i];
        }
        const V weight = v_load(valid), scale = v_div(weight, sum);
        for (int32_t o = 0; o < outputs; o++) {
            float *p = y + o * lanes + b;
            v_store(p,
                    v_sub(v_mul(v_load(p), scale), v_mul(v_load(target + o * lanes + b), weight)));
        }
    }
    return (float)(total / count);
}

/* Fills the rows that the bias and the padding multiply: ones, then zeros. */
static void fill_bias_rows(float *y, int64_t units, int64_t lanes) {
    for (int64_t i = units * lanes; i < padded(units + 1) * lanes; i++)
        y[i] = i < (units + 1) * lanes ? 1.0f : 0.0f;
}

/* Floats of scratch: outputs and slopes of all layers, two deltas, a transpose, a gradient. */
static int64_t scratch_size(const sudo_network *net) {
    int64_t size = 0, widest = 0, gradient = 0;
    for (int32_t l = 0; l <= net->layers; l++) {
        const int64_t rows = padded(net->sizes[l] + 1);
        if (rows > widest) widest = rows;
        if (l) size += 2 * rows * net->lanes;
        if (l && net->sizes[l] * padded(net->sizes[l - 1] + 1) > gradient)
            gradient = net->sizes[l] * padded(net->sizes[l - 1] + 1);
    }
    return size + 3 * widest * net->lanes + gradient;
}

static void forward_layer(const sudo_network *net, int32_t l, const float *weights,
                          const float *input, float *y, float *d) {
    const int64_t stride = padded(net->sizes[l] + 1);
    multiply(&(product){weights, stride, 1, input, net->lanes, y, net->lanes, net->sizes[l + 1],
                        net->sizes[l] + 1, net->lanes});
    activate(&net->units[l], y, d, net->sizes[l + 1] * (int64_t)net->lanes);
}

typedef struct {
    float *y[SUDO_MAX_LAYERS + 1]; /* outputs of layers 1 and up */
    float *d[SUDO_MAX_LAYERS + 1]; /* slopes of layers 1 and up */
    float *transposed, *delta, *next, *gradient;
    int64_t weights[SUDO_MAX_LAYERS]; /* offset of each layer */
} workspace;

/* Lays out scratch for networks of one shape. The rows that biases multiply are filled once. */
static workspace workspace_in(float *scratch, const sudo_network *net) {
    workspace s = {0};
    int64_t widest = 0, offset = 0;
    for (int32_t l = 0; l < net->layers; l++) {
        const int64_t rows = padded(net->sizes[l + 1] + 1), stride = padded(net->sizes[l] + 1);
        s.weights[l] = offset;
        offset += net->sizes[l + 1] * stride;
        s.y[l + 1] = scratch;
        s.d[l + 1] = scratch + rows * net->lanes;
        scratch += 2 * rows * net->lanes;
        fill_bias_rows(s.y[l + 1], net->sizes[l + 1], net->lanes);
        if (rows > widest) widest = rows;
        if (stride > widest) widest = stride;
    }
    s.transposed = scratch;
    s.delta = s.transposed + widest * net->lanes;
    s.next = s.delta + widest * net->lanes;
    s.gradient = s.next + widest * net->lanes;
    return s;
}

/* One step; returns the loss before it. */
static float train_step(sudo_network *net, const workspace *s, const float *x,
                        const float *x_transposed, const float *target, int32_t count) {
    const int64_t lanes = net->lanes;
    const int32_t last = net->layers - 1;
    float *const *y = s->y, *const *d = s->d;

    const float *input = x;
    for (int32_t l = 0; l <= last; l++) {
        forward_layer(net, l, net->weights + s->weights[l], input, y[l + 1], d[l + 1]);
        input = y[l + 1];
    }

    const int32_t outputs = net->sizes[net->layers];
    float loss;
    float *top = y[net->layers];
    if (net->loss == SUDO_CROSS_ENTROPY) {
        loss = cross_entropy(top, target, outputs, lanes, count);
    } else {
        loss = squared_error(top, target, outputs, lanes, count);
        for (int64_t i = 0; i < outputs * lanes; i += W)
            v_store(top + i, v_mul(v_load(top + i), v_load(d[net->layers] + i)));
    }
    const float *delta_out = top;
    float *delta = s->delta, *next = s->next;

    const step_constants constants = advance(net);
    for (int32_t l = last; l >= 0; l--) {
        const int64_t stride = padded(net->sizes[l] + 1);
        const float *weights = net->weights + s->weights[l];
        if (l) {
            multiply(&(product){weights, 1, stride, delta_out, lanes, next, lanes, net->sizes[l],
                                net->sizes[l + 1], net->lanes});
            for (int64_t i = 0; i < net->sizes[l] * lanes; i += W)
                v_store(next + i, v_mul(v_load(next + i), v_load(d[l] + i)));
        }
        if (net->sizes[l] <= NARROW) {
            dot_products(delta_out, l ? y[l] : x, lanes, s->gradient, net->sizes[l + 1],
                         net->sizes[l], stride);
        } else {
            if (l) transpose(y[l], stride, lanes, s->transposed);
            const float *inputs = l ? s->transposed : x_transposed;
            multiply(&(product){delta_out, lanes, 1, inputs, stride, s->gradient, stride,
                                net->sizes[l + 1], count, (int32_t)stride});
        }
        update(net, &constants, s->gradient, s->weights[l], net->sizes[l + 1] * stride);
        delta_out = next;
        float *swap = delta;
        delta = next;
        next = swap;
    }
    net->step++;
    return loss;
}

/* Rows of a prepared minibatch: inputs, ones for the bias, and zeros that dot_products() reads. */
INLINE int64_t input_rows(int32_t in) { return in <= NARROW ? (in + 4) / 4 * 4 : padded(in + 1); }

/* A narrow beta1 layer needs no transposed inputs. */
INLINE int64_t transposed_size(int32_t in, int64_t lanes) {
    return in <= NARROW ? 0 : padded(in + 1) * lanes;
}

static int64_t prepared_size(int32_t in, int32_t out, int64_t lanes) {
    return (input_rows(in) + out) * lanes + transposed_size(in, lanes);
}

int64_t PATH_NAME(sudo_scratch)(const sudo_network *net) { return scratch_size(net); }

int64_t PATH_NAME(sudo_prepared)(int32_t in, int32_t out, int32_t lanes) {
    return prepared_size(in, out, lanes);
}

void PATH_NAME(sudo_prepare)(const float *x, const float *t, int32_t in, int32_t out, int32_t lanes,
                             const int32_t *order, const int32_t *counts, int32_t batch,
                             int32_t steps, float *buffer) {
    const int64_t stride = padded(in + 1);
    for (int32_t s = 0; s < steps; s++, buffer += prepared_size(in, out, lanes)) {
        float *columns = buffer, *rows = columns + input_rows(in) * lanes;
        float *targets = rows + transposed_size(in, lanes);
        const int32_t *samples = order + (int64_t)s * batch;
        memset(buffer, 0, (size_t)prepared_size(in, out, lanes) * sizeof(float));
        for (int32_t b = 0; b < counts[s]; b++)
            for (int32_t o = 0; o < out; o++)
                targets[o * lanes + b] = t[(int64_t)samples[b] * out + o];
        if (in <= NARROW) {
            for (int32_t b = 0; b < counts[s]; b++)
                for (int32_t k = 0; k < in; k++)
                    columns[k * lanes + b] = x[(int64_t)samples[b] * in + k];
            for (int32_t b = 0; b < lanes; b++) columns[in * lanes + b] = 1.0f;
        } else {
            for (int32_t b = 0; b < counts[s]; b++)
                memcpy(rows + b * stride, x + (int64_t)samples[b] * in, (size_t)in * sizeof(float));
            for (int32_t b = 0; b < lanes; b++) rows[b * stride + in] = 1.0f;
            transpose(rows, lanes, stride, columns);
        }
    }
}

void PATH_NAME(sudo_train)(sudo_network *nets, int32_t networks, const float *buffer,
                           const int32_t *counts, int32_t steps, float *losses, float *scratch) {
    const workspace space = workspace_in(scratch, nets);
    for (int32_t i = 0; i < networks; i++) {
        sudo_network *net = &nets[i];
        const int64_t size = prepared_size(net->sizes[0], net->sizes[net->layers], net->lanes);
        const int64_t to_rows = input_rows(net->sizes[0]) * net->lanes;
        const int64_t to_targets = to_rows + transposed_size(net->sizes[0], net->lanes);
        for (int32_t s = 0; s < steps; s++) {
            float *loss = losses + (int64_t)i * steps + s;
            if (net->diverged >= 0) {
                *loss = NAN;
                continue;
            }
            const float *x = buffer + s * size;
            *loss = train_step(net, &space, x, x + to_rows, x + to_targets, counts[s]);
            if (!isfinite(*loss)) net->diverged = net->step;
        }
    }
}

void PATH_NAME(sudo_predict)(const sudo_network *net, const float *x, int64_t n, float *out,
                             float *scratch) {
    const int64_t lanes = net->lanes, stride = padded(net->sizes[0] + 1);
    const int64_t outputs = net->sizes[net->layers];
    int64_t widest = stride;
    for (int32_t l = 0; l <= net->layers; l++)
        if (padded(net->sizes[l] + 1) > widest) widest = padded(net->sizes[l] + 1);
    float *rows = scratch, *current = rows + widest * lanes, *next = current + widest * lanes;
    for (int64_t begin = 0; begin < n; begin += lanes) {
        const int64_t count = n - begin < lanes ? n - begin : lanes;
        memset(rows, 0, (size_t)(lanes * stride) * sizeof(float));
        for (int64_t b = 0; b < lanes; b++) {
            if (b < count)
                memcpy(rows + b * stride, x + (begin + b) * net->sizes[0],
                       (size_t)net->sizes[0] * sizeof(float));
            rows[b * stride + net->sizes[0]] = 1.0f;
        }
        transpose(rows, lanes, stride, current);
        const float *weights = net->weights;
        for (int32_t l = 0; l < net->layers; l++) {
            forward_layer(net, l, weights, current, next, NULL);
            fill_bias_rows(next, net->sizes[l + 1], lanes);
            weights += net->sizes[l + 1] * padded(net->sizes[l] + 1);
            float *swap = current;
            current = next;
            next = swap;
        }
        for (int64_t b = 0; b < count; b++)
            for (int64_t o = 0; o < outputs; o++)
                out[(begin + b) * outputs + o] = current[o * lanes + b];
    }
}
