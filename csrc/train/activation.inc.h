/* Forward and backward pass of a unit over an array, for one instruction set. */
#include "common/unit.h"

#define JOIN_EXPANDED(a, b) a##b
#define JOIN(a, b) JOIN_EXPANDED(a, b)
#define PATH_NAME(name) JOIN(name, SUDO_SUFFIX)

/* The last, incomplete vector goes through a buffer of zeros. */
INLINE V load_partial(const float *p, int64_t n) {
    float buffer[W] = {0};
    memcpy(buffer, p, (size_t)n * sizeof(float));
    return v_load(buffer);
}

INLINE void store_partial(float *p, V a, int64_t n) {
    float buffer[W];
    v_store(buffer, a);
    memcpy(p, buffer, (size_t)n * sizeof(float));
}

INLINE V forward_vector(const sudo_unit *u, V x) {
    if (u->count && u->count <= MAX_COMPARISONS)
        return v_select(m_nan(x), x, value_by_comparison(u, x));
    return unit_value(u, x, sigmoid_parts_at(u, x), MAX_COMPARISONS);
}

/* Where the slope is 0 no gradient passes, not even infinity. */
INLINE V backward_vector(const sudo_unit *u, V grad, V x) {
    const V d = slope(u, x, sigmoid_parts_at(u, x));
    return v_select(m_nan(x), x, v_mask(m_gt(d, v_zero()), v_mul(grad, d)));
}

/* A copy of the unit with constant fields: the compiler hoists their branches out of the loop. */
INLINE void forward_specialised(sudo_unit u, int underlying, int rectified, const float *x,
                                float *y, int64_t n) {
    u.underlying = underlying;
    u.rectified = rectified;
    int64_t i = 0;
    if (u.count == 1) { /* the binary unit: no loop over thresholds */
        const V t = v_set1(u.thresholds[0]), low = v_set1(u.values[0]), high = v_set1(u.values[1]);
        for (; i + W <= n; i += W) {
            const V a = v_load(x + i);
            v_store(y + i, v_select(m_nan(a), a, v_select(m_gt(a, t), high, low)));
        }
    } else if (u.count && u.count <= MAX_COMPARISONS) {
        for (; i + 2 * W <= n; i += 2 * W) {
            const V a = v_load(x + i), b = v_load(x + i + W);
            V p = v_set1(u.values[0]), q = p;
            for (int32_t j = 0; j < u.count; j++) {
                const V t = v_set1(u.thresholds[j]), v = v_set1(u.values[j + 1]);
                p = v_select(m_gt(a, t), v, p);
                q = v_select(m_gt(b, t), v, q);
            }
            v_store(y + i, v_select(m_nan(a), a, p));
            v_store(y + i + W, v_select(m_nan(b), b, q));
        }
    }
    for (; i + W <= n; i += W) v_store(y + i, forward_vector(&u, v_load(x + i)));
    if (i < n) store_partial(y + i, forward_vector(&u, load_partial(x + i, n - i)), n - i);
}

INLINE void backward_specialised(sudo_unit u, int underlying, int rectified, const float *g,
                                 const float *x, float *out, int64_t n) {
    u.underlying = underlying;
    u.rectified = rectified;
    int64_t i = 0;
    for (; i + W <= n; i += W) v_store(out + i, backward_vector(&u, v_load(g + i), v_load(x + i)));
    if (i < n)
        store_partial(out + i,
                      backward_vector(&u, load_partial(g + i, n - i), load_partial(x + i, n - i)),
                      n - i);
}

#define SPECIALISE(call)                                \
    switch (unit->underlying * 2 + !!unit->rectified) { \
    case 0: call(SUDO_TANH, 0);                         \
    case 1: call(SUDO_TANH, 1);                         \
    case 2: call(SUDO_SIGMOID, 0);                      \
    case 4: call(SUDO_HARDTANH, 0);                     \
    case 5: call(SUDO_HARDTANH, 1);                     \
    case 6: call(SUDO_RELU6, 0);                        \
    case 7: call(SUDO_RELU6, 1);                        \
    default: break;                                     \
    }

void PATH_NAME(sudo_forward)(const sudo_unit *unit, const float *x, float *y, int64_t n) {
#define CASE(kind, rectified)                             \
    forward_specialised(*unit, kind, rectified, x, y, n); \
    break
    SPECIALISE(CASE)
#undef CASE
}

void PATH_NAME(sudo_backward)(const sudo_unit *unit, const float *grad, const float *x, float *out,
                              int64_t n) {
#define CASE(kind, rectified)                                      \
    backward_specialised(*unit, kind, rectified, grad, x, out, n); \
    break
    SPECIALISE(CASE)
#undef CASE
}
