// Factors of norms, as the reference unit computes them. Included by the reference unit alone.
#pragma once

#include <cmath>
#include <cstdint>

namespace headrace::cpu {
namespace {

// Sum of f(x[i]) over 16 lanes, folded as the class says.
template <typename F>
inline float lane_sum(const float* x, int64_t width, F f) {
  float lanes[16] = {};
  for (int64_t i = 0; i < width; ++i) lanes[i % 16] += f(x[i]);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Mean to subtract and factor of one row.
inline void norm_factors(const float* x, int64_t width, float eps, bool subtract_mean, float* mean,
                         float* factor) {
  const auto count = static_cast<float>(width);
  const float centre = subtract_mean ? lane_sum(x, width, [](float v) { return v; }) / count : 0.0f;
  const float squares =
      lane_sum(x, width, [centre](float v) { return (v - centre) * (v - centre); });
  *mean = centre;
  *factor = 1.0f / std::sqrt(squares / count + eps);
}

}  // namespace
}  // namespace headrace::cpu
