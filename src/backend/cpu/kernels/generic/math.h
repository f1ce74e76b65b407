// Elementary functions over 16 lanes, the same bits on every instruction set.
//
// exp: range reduction by ln 2 in two parts, degree 6 polynomial; relative error below 2.5e-7 for
// x in [-87.3, 88.3], 0 below, clamped to exp(88.3) above, NaN stays NaN. tanh: odd polynomial
// below 0.3, else 1 - 2 / (exp(2 |x|) + 1); relative error below 4e-7. Both are checked by
// kernels_test.
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

template <typename F>
[[gnu::always_inline]] inline typename F::V exp_lanes(typename F::V x) {
  using V = typename F::V;
  const V lowest = F::set(-87.3f);
  const V clamped = F::min(F::set(88.3f), F::max(lowest, x));
  const V n = F::round(F::mul(clamped, F::set(1.44269504f)));
  // ln 2 = 0.693359375 - 2.12194440e-4; the first part has few bits, so n times it is exact.
  V r = F::fnma(n, F::set(0.693359375f), clamped);
  r = F::fnma(n, F::set(-2.12194440e-4f), r);
  V p = F::set(1.0f / 720.0f);
  p = F::fma(p, r, F::set(1.0f / 120.0f));
  p = F::fma(p, r, F::set(1.0f / 24.0f));
  p = F::fma(p, r, F::set(1.0f / 6.0f));
  p = F::fma(p, r, F::set(0.5f));
  p = F::fma(p, r, F::set(1.0f));
  p = F::fma(p, r, F::set(1.0f));
  return F::select_less(x, lowest, F::zero(), F::mul(p, F::power_of_two(n)));
}

template <typename F>
[[gnu::always_inline]] inline typename F::V tanh_lanes(typename F::V x) {
  using V = typename F::V;
  const V one = F::set(1.0f);
  const V magnitude = F::abs(x);
  const V e = exp_lanes<F>(F::add(magnitude, magnitude));
  const V large = F::sub(one, F::div(F::set(2.0f), F::add(e, one)));
  const V signed_large = F::select_less(x, F::zero(), F::sub(F::zero(), large), large);
  const V square = F::mul(x, x);
  V p = F::set(62.0f / 2835.0f);
  p = F::fma(p, square, F::set(-17.0f / 315.0f));
  p = F::fma(p, square, F::set(2.0f / 15.0f));
  p = F::fma(p, square, F::set(-1.0f / 3.0f));
  const V small = F::fma(F::mul(p, square), x, x);
  return F::select_less(magnitude, F::set(0.3f), small, signed_large);
}

template <typename F>
[[gnu::always_inline]] inline typename F::V silu_lanes(typename F::V x) {
  const typename F::V e = exp_lanes<F>(F::sub(F::zero(), x));
  return F::div(x, F::add(F::set(1.0f), e));
}

template <typename F>
[[gnu::always_inline]] inline typename F::V sigmoid_lanes(typename F::V x) {
  const typename F::V one = F::set(1.0f);
  return F::div(one, F::add(one, exp_lanes<F>(F::sub(F::zero(), x))));
}

// ln(1 + exp(x)) = max(x, 0) + ln(1 + t), t = exp(-|x|) in (0, 1]: 2 artanh(t / (2 + t)), whose
// argument is at most 1/3. Relative error below 6e-7.
template <typename F>
[[gnu::always_inline]] inline typename F::V softplus_lanes(typename F::V x) {
  using V = typename F::V;
  const V t = exp_lanes<F>(F::sub(F::zero(), F::abs(x)));
  const V s = F::div(t, F::add(F::set(2.0f), t));
  const V square = F::mul(s, s);
  V p = F::set(1.0f / 15.0f);
  p = F::fma(p, square, F::set(1.0f / 13.0f));
  p = F::fma(p, square, F::set(1.0f / 11.0f));
  p = F::fma(p, square, F::set(1.0f / 9.0f));
  p = F::fma(p, square, F::set(1.0f / 7.0f));
  p = F::fma(p, square, F::set(1.0f / 5.0f));
  p = F::fma(p, square, F::set(1.0f / 3.0f));
  p = F::fma(p, square, F::set(1.0f));
  return F::fma(F::add(s, s), p, F::max(F::zero(), x));
}

template <typename F>
[[gnu::always_inline]] inline typename F::V gelu_lanes(typename F::V x) {
  using V = typename F::V;
  const V cube = F::mul(F::mul(x, x), x);
  const V inner = F::mul(F::set(0.7978845608028654f), F::fma(F::set(0.044715f), cube, x));
  const V half = F::mul(F::set(0.5f), x);
  return F::mul(half, F::add(F::set(1.0f), tanh_lanes<F>(inner)));
}

// x times the normal distribution's share below x: half x erfc(|x| / root 2) is what |x| loses. The
// polynomial times exp(-x^2 / 2) is erfc to 1.5e-7 (Abramowitz and Stegun 7.1.26).
template <typename F>
[[gnu::always_inline]] inline typename F::V gelu_erf_lanes(typename F::V x) {
  using V = typename F::V;
  const V z = F::mul(F::abs(x), F::set(0.7071067811865476f));
  const V t = F::div(F::set(1.0f), F::fma(F::set(0.3275911f), z, F::set(1.0f)));
  V p = F::set(1.061405429f);
  p = F::fma(p, t, F::set(-1.453152027f));
  p = F::fma(p, t, F::set(1.421413741f));
  p = F::fma(p, t, F::set(-0.284496736f));
  p = F::fma(p, t, F::set(0.254829592f));
  const V tail = F::mul(F::mul(p, t), exp_lanes<F>(F::sub(F::zero(), F::mul(z, z))));
  const V lost = F::mul(F::mul(F::set(0.5f), x), tail);
  return F::select_less(x, F::zero(), lost, F::sub(x, lost));
}

// NaN stays NaN.
template <typename F>
[[gnu::always_inline]] inline typename F::V relu_lanes(typename F::V x) {
  return F::select_less(x, F::zero(), F::zero(), x);
}

// Of max and min the second operand is what a NaN leaves.
template <typename F>
[[gnu::always_inline]] inline typename F::V xielu_lanes(const XieluCurve& curve, typename F::V x) {
  using V = typename F::V;
  const V linear = F::mul(F::set(curve.beta), x);
  const V positive = F::mul(F::fma(F::set(curve.positive), x, F::set(curve.beta)), x);
  const V power = exp_lanes<F>(F::min(F::set(curve.eps), x));
  const V below = F::sub(F::sub(power, F::set(1.0f)), x);
  return F::select_less(F::zero(), x, positive, F::fma(below, F::set(curve.negative), linear));
}

template <typename F>
[[gnu::always_inline]] inline typename F::V activate_lanes(GateKind kind, typename F::V x) {
  using V = typename F::V;
  if (kind == GateKind::kSilu) return silu_lanes<F>(x);
  if (kind == GateKind::kGeluTanh) return gelu_lanes<F>(x);
  if (kind == GateKind::kSigmoid) return sigmoid_lanes<F>(x);
  if (kind == GateKind::kGelu) return gelu_erf_lanes<F>(x);
  const V positive = relu_lanes<F>(x);
  return kind == GateKind::kRelu ? positive : F::mul(positive, positive);
}

template <typename F>
[[gnu::always_inline]] inline typename F::V soft_cap(typename F::V x, float cap) {
  return F::mul(F::set(cap), tanh_lanes<F>(F::div(x, F::set(cap))));
}

// 2^x for x <= 0, degree 5 interpolation at Chebyshev nodes; relative error below 3e-7, 2^0 is 1,
// below -126 it is 2^-126 (nothing beside the weight 1 of the largest score), NaN stays NaN.
template <typename F>
[[gnu::always_inline]] inline typename F::V exp2_lanes(typename F::V x) {
  using V = typename F::V;
  // Adding 1.5 * 2^23 rounds to whole numbers; 127 more, and the low bits are the exponent field.
  const V magic = F::set(12582912.0f + 127.0f);
  const V clamped = F::max(F::set(-126.0f), x);
  const V shifted = F::add(clamped, magic);
  const V r = F::sub(clamped, F::sub(shifted, magic));
  V p = F::set(1.338130253736246e-3f);
  p = F::fma(p, r, F::set(9.666368515388853e-3f));
  p = F::fma(p, r, F::set(5.550381013796419e-2f));
  p = F::fma(p, r, F::set(2.4022349038020277e-1f));
  p = F::fma(p, r, F::set(6.931471805599452e-1f));
  p = F::fma(p, r, F::set(1.0f));
  return F::mul(p, F::as_floats(F::template shift_left<23>(F::as_words(shifted))));
}

template <typename F>
[[gnu::always_inline]] inline float exp2_of(float x) {
  return F::first(exp2_lanes<F>(F::set(x)));
}

}  // namespace
}  // namespace headrace::cpu
