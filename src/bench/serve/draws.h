// Draws: random numbers that are the same on every machine, as a load of one seed must be. The
// library's engine is fixed by the standard, its distributions are not; those here are.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace headrace::loads {

class Draws {
 public:
  // Streams of one seed do not disturb each other.
  Draws(uint64_t seed, uint64_t stream) : engine_(seed * 0x9e3779b97f4a7c15U + stream) {}

  // In (0, 1].
  double uniform() { return (static_cast<double>(engine_() >> 11) + 1) * 0x1p-53; }
  uint64_t below(uint64_t count) { return engine_() % count; }
  double exponential(double mean) { return -mean * std::log(uniform()); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  double log_normal(double median, double sigma) { return median * std::exp(sigma * normal()); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace headrace::loads
