#include "server/api/ollama/keep_alive.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "server/api/fields.h"

namespace headrace {
namespace {

constexpr double kLongest = 366.0 * 24 * 3600 * 1000;  // a year: as good as for ever

struct Unit {
  std::string_view name;
  double milliseconds;
};
// The longer names first: "ms" is not "m". The second "us" is written with the sign for micro.
constexpr Unit kUnits[] = {{"ms", 1},   {"us", 1e-3},  {"\u00b5s", 1e-3}, {"ns", 1e-6},
                           {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

std::optional<std::chrono::milliseconds> duration_of(double milliseconds) {
  if (!std::isfinite(milliseconds)) return std::nullopt;
  if (milliseconds < 0 || milliseconds > kLongest) return std::chrono::milliseconds(-1);
  return std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
}

// Digits with at most one point among them: no sign, no exponent, no "inf".
std::optional<double> take_number(std::string_view& text) {
  const size_t size = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + size, number);
  if (error != std::errc() || end != text.data() + size) return std::nullopt;
  text.remove_prefix(size);
  return number;
}

// "1h30m": numbers with units; a number alone is seconds.
std::optional<double> parse_duration(std::string_view text) {
  double total = 0;
  bool any = false;
  while (!text.empty() || !any) {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    if (text.empty() && !any) return *number * 1000;
    const auto* const unit =
        std::find_if(std::begin(kUnits), std::end(kUnits),
                     [&](const Unit& each) { return text.starts_with(each.name); });
    if (unit == std::end(kUnits)) return std::nullopt;
    total += *number * unit->milliseconds;
    text.remove_prefix(unit->name.size());
    any = true;
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
  if (!duration) return std::nullopt;
  return duration_of(negative ? -*duration : *duration);
}

Result<std::optional<std::chrono::milliseconds>> asked_keep_alive(const boost::json::object& body) {
  const boost::json::value* given = Fields(body).find("keep_alive");
  if (given == nullptr) return std::optional<std::chrono::milliseconds>();
  const auto time = keep_alive_of(*given);
  if (time) return time;
  return bad_field("keep_alive", show_value(*given),
                   "seconds, or a duration such as \"5m\" or \"1h30m\"; below zero: for ever");
}

}  // namespace headrace
