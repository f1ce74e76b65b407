#include "lab/evidence.h"

#include <algorithm>
#include <boost/json.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/json.h"
#include "base/quote.h"

namespace headrace::lab {
namespace {

constexpr double kLeastSpread = 1e-12;  // of squares: equal values are no infinite evidence

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double squares_around(std::span<const double> values, double centre) {
  double sum = 0;
  for (const double value : values) sum += (value - centre) * (value - centre);
  return sum;
}

void set_interval(std::span<const double> values, double mean, Effect* effect) {
  effect->improvement = effect->low = effect->high = std::expm1(mean);
  const auto count = static_cast<double>(values.size());
  if (count < 2) return;
  const boost::math::students_t distribution(count - 1);
  const double deviation = std::sqrt(squares_around(values, mean) / (count - 1) / count);
  const double half = boost::math::quantile(distribution, 0.975) * deviation;
  effect->low = std::expm1(mean - half);
  effect->high = std::expm1(mean + half);
}

// Squares around the mean, and how many of them are free.
struct Spread {
  double squares = 0, degrees = 0;
  double variance() const { return degrees > 0 ? squares / degrees : 0; }
};

Spread spread_of(std::span<const double> values, double mean,
                 std::span<const std::vector<double>> others) {
  const Spread own{squares_around(values, mean), static_cast<double>(values.size()) - 1};
  Spread all = own;
  int num_sides = 1;
  for (const std::vector<double>& each : others) {
    if (each.size() < 2) continue;
    all.squares += squares_around(each, mean_of(each));
    all.degrees += static_cast<double>(each.size()) - 1;
    ++num_sides;
  }
  if (own.variance() > all.variance()) return own;
  const double shared = 1 + (num_sides - 1) / 4.0;
  return {all.squares / shared, all.degrees / shared};
}

std::string names_in(const boost::json::object& object) {
  std::string names;
  for (const auto& member : object) {
    if (!names.empty()) names += ", ";
    names += quote(member.key());
  }
  return names.empty() ? "nothing" : names;
}

// Of a list; null where there is none of this place.
const boost::json::value* element(const boost::json::value& list, std::string_view place) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(place.begin(), place.end(), index);
  if (!list.is_array() || error != std::errc() || end != place.end()) return nullptr;
  return list.get_array().if_contains(index);
}

}  // namespace

Result<double> find_metric(std::string_view json, std::string_view name) {
  const boost::json::value whole = TRY(parse_json(json, "what the run printed"));
  const boost::json::value* at = &whole;
  for (std::string_view rest = name; !rest.empty();) {
    const boost::json::object* object = at->if_object();
    const size_t dot = rest.find('.');
    const boost::json::value* next = json_member(at, rest);  // a name may have dots of its own
    const bool is_whole = next != nullptr || dot == std::string_view::npos;
    if (next == nullptr) next = json_member(at, rest.substr(0, dot));
    if (next == nullptr) next = element(*at, rest.substr(0, dot));
    if (next == nullptr) {
      return make_error(ErrorCode::kNotFound, "the run printed no metric {}; there is {}",
                        quote(name), object == nullptr ? "no object" : names_in(*object));
    }
    at = next;
    rest = is_whole ? std::string_view() : rest.substr(dot + 1);
  }
  double value = 0;
  if (at->is_number()) value = at->to_number<double>();
  if (!std::isfinite(value) || value <= 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the metric {} is {}, and must be a number above 0: ratios are compared",
                      quote(name), boost::json::serialize(*at).substr(0, 80));
  }
  return value;
}

Effect judge(std::span<const double> log_ratios, double predicted,
             std::span<const std::vector<double>> others, double error_rate) {
  Effect effect;
  effect.num_rounds = static_cast<int>(log_ratios.size());
  if (log_ratios.empty()) return effect;
  const double mean = mean_of(log_ratios);
  set_interval(log_ratios, mean, &effect);
  const Spread spread = spread_of(log_ratios, mean, others);
  const auto squares_with = [&](double centre) {
    return spread.squares + effect.num_rounds * (mean - centre) * (mean - centre) + kLeastSpread;
  };
  const double without = squares_with(std::min(0.0, mean));
  const double with = squares_with(std::max(std::log1p(predicted), mean));
  effect.log_ratio = 0.5 * spread.degrees * std::log(without / with);
  constexpr double kMoreEvidence = 2;
  const double usual_bound = std::log(1.5 / error_rate);
  const double bound = usual_bound * (spread.degrees < kSureRounds - 1 ? kMoreEvidence : 1);
  if (effect.num_rounds < kMinRounds) return effect;
  if (effect.log_ratio >= bound) effect.verdict = Verdict::kValidated;
  if (effect.log_ratio <= -bound) effect.verdict = Verdict::kRuledOut;
  return effect;
}

std::map<int64_t, double> log_ratios_of(std::span<const Run> runs, int64_t side_idx,
                                        std::string_view metric, bool more_is_better) {
  std::map<int64_t, double> first, other;  // by round
  for (const Run& run : runs) {
    if (run.state != "done" || (run.side_idx != 0 && run.side_idx != side_idx)) continue;
    const Result<double> value = find_metric(run.metrics, metric);
    if (value.ok()) (run.side_idx == 0 ? first : other)[run.round] = *value;
  }
  std::map<int64_t, double> ratios;
  for (const auto& [round, value] : other) {
    const auto base = first.find(round);
    if (base == first.end()) continue;
    const double log_ratio = std::log(value / base->second);
    ratios[round] = more_is_better ? log_ratio : -log_ratio;
  }
  return ratios;
}

Effect effect_of(std::span<const Run> runs, int64_t side_idx, std::string_view metric,
                 bool more_is_better, double predicted) {
  std::vector<double> log_ratios;
  int64_t last_round = -1;
  for (const auto& [round, ratio] : log_ratios_of(runs, side_idx, metric, more_is_better)) {
    log_ratios.push_back(ratio);
    last_round = round;
  }
  std::set<int64_t> sides;
  for (const Run& run : runs) sides.insert(run.side_idx);
  std::vector<std::vector<double>> others;
  for (const int64_t side : sides) {
    if (side == 0 || side == side_idx) continue;
    others.emplace_back();
    for (const auto& [round, ratio] : log_ratios_of(runs, side, metric, more_is_better)) {
      if (round <= last_round) others.back().push_back(ratio);
    }
  }
  return judge(log_ratios, predicted, others);
}

std::string describe(const Effect& effect, double predicted) {
  if (effect.num_rounds == 0) return "no round yet";
  return fmt::format("{:.1f} % {} ({:.1f} to {:.1f} %) in {} rounds; predicted {:.1f} %",
                     100 * std::abs(effect.improvement),
                     effect.improvement < 0 ? "worse" : "better", 100 * effect.low,
                     100 * effect.high, effect.num_rounds, 100 * predicted);
}

}  // namespace headrace::lab
