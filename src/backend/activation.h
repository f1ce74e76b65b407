// Activations of linear layers and of gates, and the numbers of one that is learned.
#pragma once

#include <cstdint>

#include "backend/device_memory.h"

namespace headrace {

enum class Activation : uint8_t { kSilu, kGeluTanh, kSigmoid, kGelu, kRelu, kReluSquared, kXielu };
inline constexpr int kNumActivations = 7;

// Of kXielu: above 0 positive * x^2 + beta * x, else negative * (e^min(x, eps) - 1 - x) + beta * x.
struct Xielu {
  float positive = 0.0f;
  float negative = 0.0f;
  float beta = 0.0f;
  float eps = 0.0f;
};

// y = activation(x W^T + bias), then y *= factors[m]. The only op that has kXielu.
struct ActivatedArgs {
  Activation activation = Activation::kSilu;
  DevicePtr<const float> bias = {};     // [N], or null
  DevicePtr<const float> factors = {};  // [M, N] with rows factor_stride apart, or null
  int64_t factor_stride = 0;            // in floats
  Xielu xielu = {};
};

}  // namespace headrace
