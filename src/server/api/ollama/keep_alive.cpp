#include "server/api/ollama/keep_alive.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace headrace {
namespace {

constexpr double kLongest = 366.0 * 24 * 3600 * 1000;  // a year: as good as for ever

struct Unit {
  std::string_view name;
  double milliseconds;
};
// The longer names first: "ms" is not "m".
constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

std::optional<std::chrono::milliseconds> duration_of(double milliseconds) {
  if (!std::isfinite(milliseconds)) return std::nullopt;
  if (milliseconds < 0 || milliseconds > kLongest) return std::chrono::milliseconds(-1);
  return std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
}

// "1h30m": numbers with units; a number alone is seconds.
std::optional<double> parse_duration(std::string_view text) {
  double total = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return total + number * 1000;
    const Unit* found = nullptr;
    for (const Unit& unit : kUnits) {
      if (found == nullptr && text.starts_with(unit.name)) found = &unit;
    }
    if (found == nullptr) return std::nullopt;
    total += number * found->milliseconds;
    text.remove_prefix(found->name.size());
  }
  return total;
}

}  // namespace

std::optional<std::chrono::milliseconds> keep_alive_of(const boost::json::value& value) {
  if (value.is_number()) return duration_of(value.to_number<double>() * 1000);
  if (!value.is_string() || value.get_string().empty()) return std::nullopt;
  std::string_view text(value.get_string().data(), value.get_string().size());
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const auto duration = parse_duration(text);
  if (!duration || text.empty()) return std::nullopt;
  return duration_of(negative ? -*duration : *duration);
}

}  // namespace headrace
