#include "bench/serve/load_shape.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace headrace::loads {
namespace {

Error no_such_load(std::string_view text) {
  return make_error(ErrorCode::kInvalidArgument,
                    "--load is '{}', but it must be sync, throughput, closed:CLIENTS, "
                    "constant:RATE, poisson:RATE, trace, sweep or "
                    "sweep:constant",
                    text);
}

}  // namespace

std::optional<double> positive_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

std::string LoadShape::name() const {
  switch (kind) {
    case ShapeKind::kClosed:
      return clients == 1 ? "sync" : fmt::format("closed:{}", clients);
    case ShapeKind::kConstant:
      return fmt::format("constant:{:.4g}", rate);
    case ShapeKind::kPoisson:
      return fmt::format("poisson:{:.4g}", rate);
    case ShapeKind::kTrace:
      return "trace";
    case ShapeKind::kSweep:
      return swept == ShapeKind::kConstant ? "sweep:constant" : "sweep";
  }
  return {};
}

Result<LoadShape> parse_load(std::string_view text, int connections) {
  if (text == "sync") return LoadShape{};
  if (text == "throughput") return LoadShape{ShapeKind::kClosed, connections, 0};
  if (text == "trace") return LoadShape{ShapeKind::kTrace, 1, 0};
  if (text == "sweep") return LoadShape{ShapeKind::kSweep, 1, 0};
  if (text == "sweep:constant") return LoadShape{ShapeKind::kSweep, 1, 0, ShapeKind::kConstant};
  const size_t colon = text.find(':');
  if (colon == text.npos) return no_such_load(text);
  const std::string_view name = text.substr(0, colon);
  const auto value = positive_number(text.substr(colon + 1));
  if (!value) return no_such_load(text);
  if (name == "constant") return LoadShape{ShapeKind::kConstant, 1, *value};
  if (name == "poisson") return LoadShape{ShapeKind::kPoisson, 1, *value};
  if (name != "closed" || *value != std::floor(*value)) return no_such_load(text);
  if (*value > connections) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--load asks for {:.0f} clients, but --connections allows {}", *value,
                      connections);
  }
  return LoadShape{ShapeKind::kClosed, static_cast<int>(*value), 0};
}

double Arrivals::next() {
  if (shape_.kind == ShapeKind::kPoisson) {
    time_ += draws_.exponential(1 / shape_.rate);
    return time_;
  }
  return static_cast<double>(count_++) / shape_.rate;
}

}  // namespace headrace::loads
