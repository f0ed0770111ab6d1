/* A unit and its derivative on one vector. Needs simd.h. */
#ifndef SUDO_UNIT_H
#define SUDO_UNIT_H

#include "common/simd.h"
#include "sudonet.h"

/* Thresholds up to which comparing with each costs less than an estimate. The second number is for
 * training, where the slope needs the estimate's exp anyway. */
#define MAX_COMPARISONS 15
#define MAX_COMPARISONS_WITH_EXP 4

/* exp(-t) for t >= 0, within 2 units in the last place; exactly 0 beyond 87. */
INLINE V v_exp_negative(V t) {
    const V bounded = v_min(t, v_set1(87.0f));
    const V n = v_round(v_mul(bounded, v_set1(-1.44269504088896f)));
    V f = v_fma(n, v_set1(-0.693359375f), v_sub(v_zero(), bounded));
    f = v_fma(n, v_set1(2.12194440e-4f), f);
    V p = v_set1(1.9875691500e-4f);
    p = v_fma(p, f, v_set1(1.3981999507e-3f));
    p = v_fma(p, f, v_set1(8.3334519073e-3f));
    p = v_fma(p, f, v_set1(4.1665795894e-2f));
    p = v_fma(p, f, v_set1(1.6666665459e-1f));
    p = v_fma(p, f, v_set1(5.0000001201e-1f));
    p = v_add(v_fma(p, v_mul(f, f), f), v_set1(1.0f));
    return v_select(m_gt(t, v_set1(87.0f)), v_zero(), v_scale2(p, v_to_int(n)));
}

/* Common parts of tanh and the sigmoid: e = exp(-|stretch * x|) and r = 1 / (1 + e). */
typedef struct {
    V e, r;
} sigmoid_parts;

INLINE sigmoid_parts sigmoid_parts_from(V e) {
    return (sigmoid_parts){e, v_div(v_set1(1.0f), v_add(v_set1(1.0f), e))};
}

INLINE int is_sigmoidal(const sudo_unit *u) {
    return u->underlying == SUDO_TANH || u->underlying == SUDO_SIGMOID;
}

INLINE float value_by_search(const sudo_unit *u, float x) {
    int32_t low = 0, high = u->count;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (u->thresholds[middle] < x) low = middle + 1;
        else high = middle;
    }
    return u->values[low];
}

INLINE V value_by_comparison(const sudo_unit *u, V x) {
    V y = v_set1(u->values[0]);
    for (int32_t j = 0; j < u->count; j++)
        y = v_select(m_gt(x, v_set1(u->thresholds[j])), v_set1(u->values[j + 1]), y);
    return y;
}

/* a / b, correctly rounded for the a and b of every unit with up to 65,536 levels (checked for
 * all): a product with 1 / b, corrected by its remainder. */
INLINE V quotient(V a, float b) {
#if W == 4
    return v_div(a, v_set1(b));
#else
    const V r = v_set1(1.0f / b), q = v_mul(a, r);
    return v_fma(v_fma(v_sub(v_zero(), q), v_set1(b), a), r, q);
#endif
}

INLINE V value_by_estimate(const sudo_unit *u, V x, sigmoid_parts h) {
    V f = x;
    if (is_sigmoidal(u)) f = v_select(m_lt(x, v_zero()), v_mul(h.e, h.r), h.r);
    V position = v_fma(f, v_set1(u->scale), v_set1(u->offset));
    position = v_min(v_max(position, v_set1(u->low)), v_set1(u->high));
    const V plateau = v_ceil(position);
    V y = quotient(v_mul(v_sub(plateau, v_set1(u->centre)), v_set1(u->factor)), u->span);
    if (u->rectified) y = v_max(y, v_zero());
    const V distance = v_abs(v_sub(v_sub(plateau, position), v_set1(0.5f)));
    unsigned uncertain = m_bits(m_gt(distance, v_set1(0.5f - u->tolerance)));
    if (__builtin_expect(uncertain != 0, 0)) {
        float inputs[W], outputs[W];
        v_store(inputs, x);
        v_store(outputs, y);
        for (; uncertain; uncertain &= uncertain - 1) {
            const int lane = __builtin_ctz(uncertain);
            outputs[lane] = value_by_search(u, inputs[lane]);
        }
        y = v_load(outputs);
    }
    return y;
}

/* The smooth function itself, for units without tables. */
INLINE V smooth_value(const sudo_unit *u, V x, sigmoid_parts h) {
    switch (u->underlying) {
    case SUDO_TANH: return v_copysign(v_mul(v_sub(v_set1(1.0f), h.e), h.r), x);
    case SUDO_SIGMOID: return v_select(m_lt(x, v_zero()), v_mul(h.e, h.r), h.r);
    case SUDO_HARDTANH: return v_min(v_max(x, v_set1(-1.0f)), v_set1(1.0f));
    case SUDO_RELU6: return v_min(v_max(x, v_zero()), v_set1(6.0f));
    case SUDO_RELU: return v_max(x, v_zero());
    default: return x;
    }
}

/* The derivative at a number; a NaN is left to the caller. */
INLINE V slope(const sudo_unit *u, V x, sigmoid_parts h) {
    const V one = v_set1(1.0f);
    V d = one;
    switch (u->underlying) {
    case SUDO_TANH: d = v_mul(v_mul(v_set1(4.0f), h.r), v_mul(h.e, h.r)); break;
    case SUDO_SIGMOID: d = v_mul(h.r, v_mul(h.e, h.r)); break;
    case SUDO_HARDTANH: d = v_mask(m_lt(v_abs(x), one), one); break;
    case SUDO_RELU6: d = v_mask(m_and(m_gt(x, v_zero()), m_lt(x, v_set1(6.0f))), one); break;
    case SUDO_RELU: d = v_mask(m_gt(x, v_zero()), one); break;
    default: break;
    }
    return u->rectified ? v_select(m_lt(x, v_zero()), v_zero(), d) : d;
}

INLINE V sigmoid_argument(const sudo_unit *u, V x) {
    return v_mul(v_abs(x), v_set1(u->underlying == SUDO_TANH ? 2.0f : 1.0f));
}

INLINE sigmoid_parts sigmoid_parts_at(const sudo_unit *u, V x) {
    return is_sigmoidal(u) ? sigmoid_parts_from(v_exp_negative(sigmoid_argument(u, x)))
                           : (sigmoid_parts){v_zero(), v_zero()};
}

/* The same for training, with fewer operations: accurate to 3e-7, and never 0. */
INLINE sigmoid_parts fast_sigmoid_parts_at(const sudo_unit *u, V x) {
    if (!is_sigmoidal(u)) return (sigmoid_parts){v_zero(), v_zero()};
    const float log2_e = 1.44269504f;
    const V s = v_max(v_mul(v_abs(x), v_set1(u->underlying == SUDO_TANH ? -2 * log2_e : -log2_e)),
                      v_set1(-125.0f));
    const V n = v_round(s), f = v_sub(s, n);
    V p = v_set1(1.3264719e-3f);
    p = v_fma(p, f, v_set1(9.6715139e-3f));
    p = v_fma(p, f, v_set1(5.5507340e-2f));
    p = v_fma(p, f, v_set1(2.4022242e-1f));
    p = v_fma(p, f, v_set1(6.9314700e-1f));
    p = v_fma(p, f, v_set1(1.0f));
    return sigmoid_parts_from(v_scale2(p, v_to_int(n)));
}

INLINE V unit_value(const sudo_unit *u, V x, sigmoid_parts h, int max_comparisons) {
    const V y = u->count == 0                 ? smooth_value(u, x, h)
                : u->count <= max_comparisons ? value_by_comparison(u, x)
                                              : value_by_estimate(u, x, h);
    return v_select(m_nan(x), x, y);
}

#endif
