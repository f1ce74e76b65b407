// Arguments of the ops over streams beside the residual one, and over gates that keep what stands
// out. Rules as in backend.h.
#pragma once

#include <cstdint>

#include "backend/activation.h"
#include "backend/device_memory.h"

namespace headrace {

// What is done to the rows of all streams: of the residual one, x_0, and those beside it, x_i.
enum class StreamMix : uint8_t {
  kLevel,    // x_i times root(mean x_0^2) / root(max(mean x_i^2, 1e-5))
  kPredict,  // x_j += sum over i of c[j * P + i] * x_i, all x_i as they were
  kCorrect,  // x_j += (c[j] + 1) * (activated - x_0), x_0 as it was; scaled = x_0 * scale
  kSpread,   // x_i += activated
  kAverage,  // kLevel, then x_0 = the mean of all
};
inline constexpr int kMaxStreams = 8;

// P streams; c = coefs * tanh(routed), of each row.
struct StreamArgs {
  StreamMix mix = StreamMix::kLevel;
  int num_streams = 0;       // P, the residual one counted
  DevicePtr<float> hidden;   // [M, width] x_0
  DevicePtr<float> streams;  // [P - 1][M, width] x_1.., stream_stride floats apart
  int64_t stream_stride = 0;
  int64_t num_rows = 0;
  int64_t width = 0;
  DevicePtr<const float> routed = {};     // [M, P]; kPredict, kCorrect
  DevicePtr<const float> coefs = {};      // [P * P, P], or [P, P] of kCorrect
  DevicePtr<const float> activated = {};  // [M, width]; kCorrect, kSpread
  DevicePtr<const float> scale = {};      // [width] or null: 1
  DevicePtr<float> scaled = {};           // [M, width]; kCorrect
};

// out[m] = activation(max(0, g - (mean + deviations * standard deviation))) * up[m], of the numbers
// g = gate[m] of the row; gate is changed.
struct SparseGateArgs {
  DevicePtr<float> gate;      // [M, width]
  DevicePtr<const float> up;  // [M, width]
  DevicePtr<float> out;       // [M, width]; may be up
  int64_t num_rows = 0;
  int64_t width = 0;
  float deviations = 0.0f;
  Activation activation = Activation::kSilu;
};

}  // namespace headrace
