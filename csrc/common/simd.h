/* One vector vocabulary for three instruction sets.
 *
 * A file that includes this has defined exactly one of SUDO_AVX512, SUDO_AVX2 or
 * SUDO_PORTABLE. V holds W floats, VI as many int32, M a lane mask. Nothing here
 * rounds differently from the scalar operation of the same name, except fma,
 * which the portable set does not have.
 */
#ifndef SUDO_SIMD_H
#define SUDO_SIMD_H

#include "common/target.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(SUDO_AVX512)

#include <immintrin.h>
#define W 16
typedef __m512 V;
typedef __m512i VI;
typedef __mmask16 M;

INLINE V v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, V a) { _mm512_storeu_ps(p, a); }
INLINE V v_set1(float a) { return _mm512_set1_ps(a); }
INLINE V v_zero(void) { return _mm512_setzero_ps(); }
INLINE V v_add(V a, V b) { return _mm512_add_ps(a, b); }
INLINE V v_sub(V a, V b) { return _mm512_sub_ps(a, b); }
INLINE V v_mul(V a, V b) { return _mm512_mul_ps(a, b); }
INLINE V v_div(V a, V b) { return _mm512_div_ps(a, b); }
INLINE V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
INLINE V v_sqrt(V a) { return _mm512_sqrt_ps(a); }
INLINE V v_min(V a, V b) { return _mm512_min_ps(a, b); }
INLINE V v_max(V a, V b) { return _mm512_max_ps(a, b); }
INLINE V v_abs(V a) { return _mm512_abs_ps(a); }
INLINE V v_copysign(V a, V sign) {
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        _mm512_castps_si512(a), _mm512_castps_si512(sign), _mm512_set1_epi32(INT32_MIN), 0xd8));
}
INLINE V v_round(V a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE V v_ceil(V a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
INLINE M m_gt(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE M m_lt(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE M m_nan(V a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
INLINE M m_and(M a, M b) { return a & b; }
INLINE unsigned m_bits(M m) { return m; }
INLINE V v_select(M m, V yes, V no) { return _mm512_mask_blend_ps(m, no, yes); }
INLINE V v_mask(M m, V a) { return _mm512_maskz_mov_ps(m, a); }
INLINE VI v_to_int(V a) { return _mm512_cvtps_epi32(a); }
/* a * 2^n for n in the range of normal exponents */
INLINE V v_scale2(V a, VI n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(n, 23)));
}
INLINE float v_sum(V a) { return _mm512_reduce_add_ps(a); }
/* Stores the sums of four vectors side by side. */
INLINE void v_store_sums(float *p, V a, V b, V c, V d) {
    const V ab = v_add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const V cd = v_add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const V s = v_add(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    const __m256 t = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

#elif defined(SUDO_AVX2)

#include <immintrin.h>
#define W 8
typedef __m256 V;
typedef __m256i VI;
typedef __m256 M;

INLINE V v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, V a) { _mm256_storeu_ps(p, a); }
INLINE V v_set1(float a) { return _mm256_set1_ps(a); }
INLINE V v_zero(void) { return _mm256_setzero_ps(); }
INLINE V v_add(V a, V b) { return _mm256_add_ps(a, b); }
INLINE V v_sub(V a, V b) { return _mm256_sub_ps(a, b); }
INLINE V v_mul(V a, V b) { return _mm256_mul_ps(a, b); }
INLINE V v_div(V a, V b) { return _mm256_div_ps(a, b); }
INLINE V v_fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
INLINE V v_sqrt(V a) { return _mm256_sqrt_ps(a); }
INLINE V v_min(V a, V b) { return _mm256_min_ps(a, b); }
INLINE V v_max(V a, V b) { return _mm256_max_ps(a, b); }
INLINE V v_abs(V a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE V v_copysign(V a, V sign) {
    const V bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, a), _mm256_and_ps(bit, sign));
}
INLINE V v_round(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE V v_ceil(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
INLINE M m_gt(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
INLINE M m_lt(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE M m_nan(V a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
INLINE M m_and(M a, M b) { return _mm256_and_ps(a, b); }
INLINE unsigned m_bits(M m) { return (unsigned)_mm256_movemask_ps(m); }
INLINE V v_select(M m, V yes, V no) { return _mm256_blendv_ps(no, yes, m); }
INLINE V v_mask(M m, V a) { return _mm256_and_ps(m, a); }
INLINE VI v_to_int(V a) { return _mm256_cvtps_epi32(a); }
INLINE V v_scale2(V a, VI n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(n, 23)));
}
INLINE float v_sum(V a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
INLINE void v_store_sums(float *p, V a, V b, V c, V d) {
    const V t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

#elif defined(SUDO_PORTABLE)

#define W 4
typedef float V __attribute__((vector_size(16)));
typedef int32_t VI __attribute__((vector_size(16)));
typedef VI M;

INLINE V v_load(const float *p) {
    V a;
    memcpy(&a, p, sizeof a);
    return a;
}
INLINE void v_store(float *p, V a) { memcpy(p, &a, sizeof a); }
INLINE V v_set1(float a) { return (V){a, a, a, a}; }
INLINE V v_zero(void) { return v_set1(0.0f); }
INLINE V v_add(V a, V b) { return a + b; }
INLINE V v_sub(V a, V b) { return a - b; }
INLINE V v_mul(V a, V b) { return a * b; }
INLINE V v_div(V a, V b) { return a / b; }
INLINE V v_fma(V a, V b, V c) { return a * b + c; }
INLINE V v_sqrt(V a) { return (V){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
INLINE V v_select(M m, V yes, V no) { return (V)((m & (VI)yes) | (~m & (VI)no)); }
INLINE V v_mask(M m, V a) { return (V)(m & (VI)a); }
INLINE V v_min(V a, V b) { return v_select(a < b, a, b); }
INLINE V v_max(V a, V b) { return v_select(a > b, a, b); }
INLINE V v_abs(V a) { return (V)((VI)a & 0x7fffffff); }
INLINE V v_copysign(V a, V sign) { return (V)(((VI)a & 0x7fffffff) | ((VI)sign & INT32_MIN)); }
/* v_round and v_ceil are exact for |a| < 2^22; callers stay below. */
INLINE V v_round(V a) {
    const V big = v_set1(12582912.0f);
    return (a + big) - big;
}
INLINE V v_ceil(V a) {
    V r = v_round(a);
    return r + v_mask(r < a, v_set1(1.0f));
}
INLINE M m_gt(V a, V b) { return a > b; }
INLINE M m_lt(V a, V b) { return a < b; }
INLINE M m_nan(V a) { return ~(a == a); }
INLINE M m_and(M a, M b) { return a & b; }
INLINE unsigned m_bits(M m) { return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u); }
INLINE VI v_to_int(V a) { return __builtin_convertvector(v_round(a), VI); }
INLINE V v_scale2(V a, VI n) { return (V)((VI)a + (n << 23)); }
INLINE float v_sum(V a) { return (a[0] + a[2]) + (a[1] + a[3]); }
INLINE void v_store_sums(float *p, V a, V b, V c, V d) {
    v_store(p, (V){v_sum(a), v_sum(b), v_sum(c), v_sum(d)});
}

#else
#error "define SUDO_AVX512, SUDO_AVX2 or SUDO_PORTABLE before including simd.h"
#endif

#endif
