// When requests are sent. A closed load keeps a number of them running; an open one sends them at
// times that do not wait for answers, so that a slow server cannot slow its own measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "bench/serve/draws.h"

namespace headrace::loads {

enum class ShapeKind : uint8_t {
  kClosed,    // `clients` requests at a time
  kConstant,  // one every 1 / rate seconds
  kPoisson,   // `rate` a second, independent of each other
  kTrace,     // at the times of a recording
  kSweep,     // of the command alone: one client, as many as may be, and rates between
};

struct LoadShape {
  ShapeKind kind = ShapeKind::kClosed;
  int clients = 1;
  double rate = 0;                        // requests per second
  ShapeKind swept = ShapeKind::kPoisson;  // of a sweep: how it offers its rates

  bool is_open() const { return kind != ShapeKind::kClosed; }
  std::string name() const;  // as it is typed
};

// "sync", "throughput" (as many clients as connections), "closed:N", "constant:RATE",
// "poisson:RATE", "trace", "sweep" or "sweep:constant". kInvalidArgument with the forms there are.
Result<LoadShape> parse_load(std::string_view text, int connections);

// The times at which an open load with a rate sends, in seconds from its start.
class Arrivals {
 public:
  Arrivals(const LoadShape& shape, uint64_t seed) : shape_(shape), draws_(seed, 1) {}
  double next();

 private:
  LoadShape shape_;
  Draws draws_;
  double time_ = 0;
  int64_t count_ = 0;
};

// All of a text as a positive number; empty: it is none.
std::optional<double> positive_number(std::string_view text);

}  // namespace headrace::loads
