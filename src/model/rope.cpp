#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headrace {
namespace {

// b^(-2i/r), in the reference's order of float32 operations.
void default_frequencies(double theta, int rope_dims, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dims);
    out[i] = 1.0f / std::pow(static_cast<float>(theta), exponent);
  }
}

void scale_llama3(const RopeConfig& rope, std::span<float> frequencies) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto low_wavelength = static_cast<float>(original / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  for (float& f : frequencies) {
    const float wavelength = 2 * std::numbers::pi_v<float> / f;
    if (wavelength > low_wavelength) {
      f = f / factor;
    } else if (wavelength >= high_wavelength) {
      const auto low = static_cast<float>(rope.low_freq_factor);
      const auto high = static_cast<float>(rope.high_freq_factor);
      const float smooth = (static_cast<float>(original) / wavelength - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

// The dimension whose wavelength turns `turns` times over the original length.
double yarn_dimension(const RopeConfig& rope, double turns) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  return rope.rope_dims * std::log(original / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.rope_theta));
}

void scale_yarn(const RopeConfig& rope, std::span<float> frequencies) {
  double low = yarn_dimension(rope, rope.beta_fast);
  double high = yarn_dimension(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rope_dims - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto position = static_cast<float>((static_cast<double>(i) - low) / (high - low));
    const float ramp = std::clamp(position, 0.0f, 1.0f);
    const float scaled = frequencies[i] / static_cast<float>(rope.factor);
    frequencies[i] = scaled * ramp + frequencies[i] * (1 - ramp);
  }
}

void divide(std::span<float> frequencies, std::span<const float> divisors) {
  CHECK(divisors.size() == frequencies.size(), "{} divisors for {} frequencies", divisors.size(),
        frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors[i];
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config) : config_(config) {
  base_.resize(static_cast<size_t>(half()));
  default_frequencies(config.rope_theta, config.rope_dims, base_);
  long_ = base_;
  if (config.type == RopeType::kLinear || config.type == RopeType::kProportional) {
    for (float& f : base_) f /= static_cast<float>(config.factor);
  }
  if (config.type == RopeType::kProportional) {
    std::fill(base_.begin() + config.rotated_pairs, base_.end(), 0.0f);
  }
  if (config.type == RopeType::kLlama3) scale_llama3(config, base_);
  if (config.type == RopeType::kYarn) scale_yarn(config, base_);
  if (config.type == RopeType::kLongrope) {
    divide(base_, config.short_factor);
    divide(long_, config.long_factor);
  }
  if (!config.frequency_divisor.empty()) divide(base_, config.frequency_divisor);
}

int64_t RopeTable::epoch(int64_t num_tokens) const {
  if (config_.type == RopeType::kDynamic) {
    return num_tokens > config_.max_position_embeddings ? num_tokens : 0;
  }
  if (config_.type == RopeType::kLongrope) {
    const int64_t original = config_.original_max_position_embeddings;
    return num_tokens > original ? original : 0;
  }
  return 0;
}

std::span<const float> RopeTable::frequencies(int64_t epoch, std::span<float> scratch) const {
  if (config_.type == RopeType::kLongrope) {
    return epoch >= config_.original_max_position_embeddings ? long_ : base_;
  }
  if (config_.type != RopeType::kDynamic || epoch <= config_.max_position_embeddings) return base_;
  const double ratio =
      static_cast<double>(epoch) / static_cast<double>(config_.max_position_embeddings);
  const double growth = config_.factor * ratio - (config_.factor - 1);
  const double exponent = config_.rope_dims / (config_.rope_dims - 2.0);
  scratch = scratch.first(base_.size());
  default_frequencies(config_.rope_theta * std::pow(growth, exponent), config_.rope_dims, scratch);
  return scratch;
}

}  // namespace headrace
