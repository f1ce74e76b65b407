#include "bench/op_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "backend/cpu/kernels/layouts.h"

namespace headrace {
namespace {

constexpr std::string_view kRatedOpNames[] = {
    "product", "attention_row", "attention_chunk", "quantise", "norm",  "finish",
    "gate",    "rope",          "append",          "join",     "start", "read"};

auto place_of(const OpRate& rate) {
  return std::tie(rate.op, rate.of, rate.working_set, rate.size);
}

int nearest(std::span<const int> values, int wanted) {
  const auto distance = [&](int value) {
    return std::abs(std::log(static_cast<double>(value) / wanted));
  };
  return *std::ranges::min_element(values, {}, distance);
}

// Of one working set, ascending by size.
double at_size(std::span<const OpRate> rates, double size) {
  if (size <= rates.front().size) return rates.front().seconds;
  for (size_t i = 1; i < rates.size(); ++i) {
    if (size > rates[i].size) continue;
    const double low = std::log(rates[i - 1].size), high = std::log(rates[i].size);
    const double place = (std::log(size) - low) / (high - low);
    return rates[i - 1].seconds + place * (rates[i].seconds - rates[i - 1].seconds);
  }
  return rates.back().seconds;
}

struct OfWorkingSet {
  double working_set, seconds;
};

std::vector<OfWorkingSet> by_working_set(std::span<const OpRate> rates, double size) {
  const double largest = std::ranges::max(rates, {}, &OpRate::size).size;
  std::vector<OfWorkingSet> sets;  // those that reach the size, or as far as any
  while (!rates.empty()) {
    const double working_set = rates.front().working_set;
    const auto other = std::ranges::find_if(
        rates, [&](const OpRate& rate) { return rate.working_set != working_set; });
    const auto count = static_cast<size_t>(other - rates.begin());
    if (rates[count - 1].size >= size || rates[count - 1].size >= largest) {
      sets.push_back({working_set, at_size(rates.first(count), size)});
    }
    rates = rates.subspan(count);
  }
  return sets;
}

// On the line through two measured working sets, by what a byte of each takes.
double on_line(const OfWorkingSet& low, const OfWorkingSet& high, double working_set,
               const std::function<double(double)>& read_s) {
  const double first = read_s(low.working_set), second = read_s(high.working_set);
  if (second <= first) return std::max(low.seconds, high.seconds);
  const double place = (read_s(working_set) - first) / (second - first);
  return low.seconds + place * (high.seconds - low.seconds);
}

}  // namespace

std::string_view rated_op_name(RatedOp op) { return kRatedOpNames[static_cast<size_t>(op)]; }

std::optional<RatedOp> parse_rated_op(std::string_view name) {
  const auto* found = std::ranges::find(kRatedOpNames, name);
  if (found == std::end(kRatedOpNames)) return std::nullopt;
  return static_cast<RatedOp>(found - std::begin(kRatedOpNames));
}

std::string_view activation_name(cpu::ActivationType activation) {
  constexpr std::string_view kNames[] = {"f32",    "int8",  "int16",     "bf16",
                                         "bf16x2", "fixed", "bf16_codes"};
  return kNames[static_cast<size_t>(activation)];
}

std::string product_variant(cpu::Layout layout, cpu::ActivationType activation) {
  return fmt::format("{} {}", cpu::layout_info(layout).name, activation_name(activation));
}

std::string attention_variant(KvType type, int head_dim, int queries_per_key) {
  return fmt::format("{} {} x{}", kv_type_name(type), nearest(kRatedHeadDims, head_dim),
                     nearest(kRatedGroups, queries_per_key));
}

void OpRates::add(OpRate rate) {
  const auto after = std::ranges::upper_bound(
      rates_, rate, [](const OpRate& a, const OpRate& b) { return place_of(a) < place_of(b); });
  rates_.insert(after, std::move(rate));
}

std::optional<double> OpRates::seconds(RatedOp op, std::string_view of, double size,
                                       double working_set,
                                       const std::function<double(double)>& read_s) const {
  const auto key = [](const OpRate& rate) { return std::pair(rate.op, std::string_view(rate.of)); };
  const auto found = std::ranges::equal_range(rates_, std::pair(op, of), {}, key);
  if (found.empty()) return std::nullopt;
  const std::vector<OfWorkingSet> sets = by_working_set(found, size);
  if (working_set <= sets.front().working_set || sets.size() == 1) return sets.front().seconds;
  for (size_t i = 1; i < sets.size(); ++i) {
    if (working_set > sets[i].working_set) continue;
    return on_line(sets[i - 1], sets[i], working_set, read_s);
  }
  return std::max(on_line(sets.front(), sets.back(), working_set, read_s), sets.front().seconds);
}

std::optional<double> OpRates::seconds(RatedOp op, std::string_view of, double size) const {
  return seconds(op, of, size, 0, [](double) { return 0.0; });
}

}  // namespace headrace
