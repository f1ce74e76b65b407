#include "bench/serve/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace headrace::loads {
namespace {

constexpr int kResamples = 200;
constexpr size_t kMostResampled = 2000;
constexpr size_t kFewRequests = 10;  // a tenth of them is not one
constexpr double kLowTail = 0.025;
// An answer that takes this much longer for each second of load belongs to a queue that grows.
constexpr double kSteadyGrowth = 0.05;
constexpr double kMostRefused = 0.01;
constexpr size_t kLeastForSlope = 20;

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Estimate interval(double value, std::vector<double> resampled) {
  if (resampled.empty()) return {value, value, value};
  std::ranges::sort(resampled);
  return {value, quantile(resampled, kLowTail), quantile(resampled, 1 - kLowTail)};
}

std::vector<double> resample(std::span<const double> values, Draws& draws) {
  std::vector<double> drawn(values.size());
  for (double& value : drawn) value = values[draws.below(values.size())];
  return drawn;
}

void estimate_by_resampling(std::span<const double> sorted, uint64_t seed, Distribution* result) {
  std::vector<double> means;
  std::array<std::vector<double>, kQuantiles.size()> parts;
  Draws draws(seed, 6);
  for (int i = 0; i < kResamples && sorted.size() > 1; ++i) {
    std::vector<double> drawn = resample(sorted, draws);
    std::ranges::sort(drawn);
    means.push_back(mean_of(drawn));
    for (size_t k = 0; k < parts.size(); ++k) parts[k].push_back(quantile(drawn, kQuantiles[k]));
  }
  result->mean = interval(mean_of(sorted), std::move(means));
  for (size_t k = 0; k < parts.size(); ++k) {
    result->quantiles[k] = interval(quantile(sorted, kQuantiles[k]), std::move(parts[k]));
  }
}

// What resampling of many values comes to: the rank of a quantile is binomial, a mean normal.
void estimate_by_ranks(std::span<const double> sorted, Distribution* result) {
  constexpr double kDeviations = 1.96;
  const auto count = static_cast<double>(sorted.size());
  const double mean = mean_of(sorted);
  double squares = 0;
  for (const double value : sorted) squares += (value - mean) * (value - mean);
  const double error = kDeviations * std::sqrt(squares / count / count);
  result->mean = {mean, mean - error, mean + error};
  for (size_t k = 0; k < kQuantiles.size(); ++k) {
    const double p = kQuantiles[k], spread = kDeviations * std::sqrt(p * (1 - p) / count);
    result->quantiles[k] = {quantile(sorted, p), quantile(sorted, std::max(p - spread, 0.0)),
                            quantile(sorted, std::min(p + spread, 1.0))};
  }
}

struct Window {
  double begin = 0, end = 0;
  bool holds(double time) const { return time >= begin && time < end; }
  double seconds() const { return std::max(end - begin, 1e-9); }
};

// A load that ended before its time is measured up to its last answer.
Window window_of(const StageRecord& record) {
  double end = record.rule.seconds;
  const bool sends_all = record.rule.shape.kind == ShapeKind::kTrace ||
                         (record.rule.max_requests > 0 &&
                          static_cast<int64_t>(record.requests.size()) >= record.rule.max_requests);
  if (sends_all || !record.ended_by.empty()) {
    end = 0;
    for (const RequestRecord& request : record.requests) end = std::max(end, request.ended);
    end = std::nextafter(end, 2 * end + 1);
  }
  const bool is_short = sends_all && record.requests.size() < kFewRequests;
  return {std::min(record.rule.warmup.value_or(is_short ? 0 : end / 10), end), end};
}

// The tokens of a request that came with each of its pieces.
double tokens_per_piece(const RequestRecord& request) {
  if (request.pieces.empty()) return 0;
  return static_cast<double>(request.output_tokens) / static_cast<double>(request.pieces.size());
}

// In each of equal parts of the window: what resampling needs, for neighbours in time are alike.
std::vector<double> token_rates(const StageRecord& record, const Window& window) {
  const auto num_parts =
      static_cast<size_t>(std::clamp(std::floor(window.seconds()), 10.0, 1000.0));
  std::vector<double> parts(num_parts);
  const double part_seconds = window.seconds() / static_cast<double>(num_parts);
  for (const RequestRecord& request : record.requests) {
    const double weight = tokens_per_piece(request);
    for (const double piece : request.pieces) {
      if (!window.holds(piece)) continue;
      const auto part = static_cast<size_t>((piece - window.begin) / part_seconds);
      parts[std::min(part, num_parts - 1)] += weight / part_seconds;
    }
  }
  return parts;
}

double ttft_ms(const RequestRecord& request) {
  return 1e3 * (request.pieces.front() - request.due);
}
double e2e_ms(const RequestRecord& request) { return 1e3 * (request.pieces.back() - request.due); }

// The mean gap between tokens; none of an answer of one.
std::optional<double> tpot_ms(const RequestRecord& request) {
  if (request.output_tokens < 2) return std::nullopt;
  return 1e3 * (request.pieces.back() - request.pieces.front()) /
         static_cast<double>(request.output_tokens - 1);
}

using Values = std::array<std::vector<double>, kNumLatencies>;

void add_latencies(const RequestRecord& request, Values& values) {
  values[kTtft].push_back(ttft_ms(request));
  values[kE2e].push_back(e2e_ms(request));
  values[kQueue].push_back(1e3 * (request.sent - request.due));
  for (size_t i = 1; i < request.pieces.size(); ++i) {
    values[kItl].push_back(1e3 * (request.pieces[i] - request.pieces[i - 1]));
  }
  if (const auto tpot = tpot_ms(request)) values[kTpot].push_back(*tpot);
  if (request.server_prompt_ms) values[kServerPrompt].push_back(*request.server_prompt_ms);
  if (request.server_answer_ms) values[kServerAnswer].push_back(*request.server_answer_ms);
}

bool is_good(const RequestRecord& request, const Slo& slo) {
  const auto within = [](const std::optional<double>& limit, double value) {
    return !limit || value <= *limit;
  };
  return within(slo.ttft, ttft_ms(request)) && within(slo.e2e, e2e_ms(request)) &&
         within(slo.itl, tpot_ms(request).value_or(0));
}

// The middle of all slopes between two of the points: a few wild ones do not move it.
double median_slope(std::span<const std::pair<double, double>> points) {
  const size_t stride = points.size() / 300 + 1;
  std::vector<double> slopes;
  for (size_t i = 0; i < points.size(); i += stride) {
    for (size_t j = i + stride; j < points.size(); j += stride) {
      const double run = points[j].first - points[i].first;
      if (run > 0) slopes.push_back((points[j].second - points[i].second) / run);
    }
  }
  std::ranges::sort(slopes);
  return quantile(slopes, 0.5);
}

double mean_running(const StageRecord& record, const Window& window) {
  double sum = 0;
  for (const RequestRecord& request : record.requests) {
    const double begin = std::max(request.sent, window.begin);
    sum += std::max(std::min(request.ended, window.end) - begin, 0.0);
  }
  return sum / window.seconds();
}

void count_outcome(const RequestRecord& request, StageSummary* summary) {
  ++summary->num_requests;
  if (request.ok()) {
    ++summary->num_answered;
  } else if (request.status == 429 || request.status == 503) {
    ++summary->num_refused;
  } else {
    ++summary->num_failed;
    if (summary->first_error.empty()) summary->first_error = request.error;
  }
}

// Of the requests that were due inside the window.
void add_requests(const StageRecord& record, const Window& window, const Slo& slo,
                  StageSummary* summary) {
  Values values;
  std::vector<std::pair<double, double>> answer_times;
  size_t num_good = 0;
  for (const RequestRecord& request : record.requests) {
    if (!window.holds(request.due)) continue;
    count_outcome(request, summary);
    if (!request.ok()) continue;
    add_latencies(request, values);
    summary->mean_prompt_tokens += static_cast<double>(request.prompt_tokens);
    summary->mean_answer_tokens += static_cast<double>(request.output_tokens);
    answer_times.emplace_back(request.due, 1e-3 * e2e_ms(request));
    if (is_good(request, slo)) ++num_good;
  }
  const auto num_answered = static_cast<double>(std::max<size_t>(summary->num_answered, 1));
  summary->mean_prompt_tokens /= num_answered;
  summary->mean_answer_tokens /= num_answered;
  for (size_t i = 0; i < kNumLatencies; ++i) {
    summary->latencies[i] = distribution_of(std::move(values[i]), record.rule.seed + i);
  }
  summary->offered_per_s = static_cast<double>(summary->num_requests) / window.seconds();
  if (slo.any()) summary->goodput_per_s = static_cast<double>(num_good) / window.seconds();
  if (!record.rule.shape.is_open()) return;
  if (answer_times.size() >= kLeastForSlope) summary->growth = median_slope(answer_times);
  const double refused = static_cast<double>(summary->num_refused) /
                         static_cast<double>(std::max<size_t>(summary->num_requests, 1));
  summary->saturated = summary->growth > kSteadyGrowth || refused > kMostRefused;
}

// Of all that happened inside the window.
void add_rates(const StageRecord& record, const Window& window, StageSummary* summary) {
  double prompt_tokens = 0, answered = 0;
  for (const RequestRecord& request : record.requests) {
    if (!request.pieces.empty() && window.holds(request.pieces.front())) {
      prompt_tokens += static_cast<double>(request.prompt_tokens);
    }
    if (request.ok() && window.holds(request.ended)) ++answered;
  }
  summary->prompt_tokens_per_s = prompt_tokens / window.seconds();
  summary->requests_per_s = answered / window.seconds();
  summary->mean_running = mean_running(record, window);
  const std::vector<double> rates = token_rates(record, window);
  Draws draws(record.rule.seed, 5);
  std::vector<double> means;
  for (int i = 0; i < kResamples; ++i) means.push_back(mean_of(resample(rates, draws)));
  summary->output_tokens_per_s = interval(mean_of(rates), std::move(means));
}

Result<double> parse_milliseconds(std::string_view text) {
  const bool has_unit = text.ends_with("s");
  const bool is_ms = text.ends_with("ms");
  const auto value = positive_number(text.substr(0, text.size() - (is_ms ? 2 : has_unit ? 1 : 0)));
  if (!value || !has_unit) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--slo has the time '{}', but a time is such as 300ms or 1.5s", text);
  }
  return is_ms ? *value : 1e3 * *value;
}

}  // namespace

double quantile(std::span<const double> sorted, double p) {
  if (sorted.empty()) return 0;
  const double place = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Distribution distribution_of(std::vector<double> values, uint64_t seed) {
  Distribution result;
  result.count = values.size();
  std::ranges::sort(values);
  const bool is_large = values.size() > kMostResampled;
  is_large ? estimate_by_ranks(values, &result) : estimate_by_resampling(values, seed, &result);
  result.sorted = std::move(values);
  return result;
}

Result<Slo> parse_slo(std::string_view text) {
  Slo slo;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    std::optional<double>* place = name == "ttft"  ? &slo.ttft
                                   : name == "itl" ? &slo.itl
                                   : name == "e2e" ? &slo.e2e
                                                   : nullptr;
    if (place == nullptr || equals == part.npos) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--slo has '{}', but its parts are ttft=TIME, itl=TIME and e2e=TIME", part);
    }
    *place = TRY(parse_milliseconds(part.substr(equals + 1)));
  }
  return slo;
}

StageSummary summarize(const StageRecord& record, const Slo& slo) {
  StageSummary summary;
  summary.shape = record.rule.shape;
  summary.load = record.rule.shape.name();
  const Window window = window_of(record);
  summary.window_seconds = window.seconds();
  add_requests(record, window, slo, &summary);
  add_rates(record, window, &summary);
  summary.cpu_share = record.cpu_share;
  summary.ended_by = record.ended_by;
  return summary;
}

Saturation find_saturation(std::span<const StageSummary> stages) {
  Saturation found;
  const auto counts = [](const StageSummary& stage) {
    return stage.shape.is_open() && stage.num_requests >= kLeastForSlope;
  };
  for (const StageSummary& stage : stages) {
    if (!counts(stage) || !stage.saturated) continue;
    if (found.exceeded && *found.exceeded <= stage.offered_per_s) continue;
    found.exceeded = stage.offered_per_s;
    // Answers that come later and later by what is sent and not served meanwhile.
    found.estimate = stage.offered_per_s / (1 + std::max(stage.growth, 0.0));
  }
  for (const StageSummary& stage : stages) {
    if (!counts(stage) || stage.saturated) continue;
    if (found.exceeded && stage.offered_per_s >= *found.exceeded) continue;
    found.sustained = std::max(found.sustained.value_or(0), stage.offered_per_s);
  }
  return found;
}

}  // namespace headrace::loads
