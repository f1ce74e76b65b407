// Greedy ids, log-probs and perplexity of a real model against recorded ones.

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include "verify/perplexity.h"
#include "verify/sequence_runner.h"
#include "verify/verify.h"

namespace headrace {
namespace {

namespace json = boost::json;

// Perplexity may differ by this share: 0.1 % where arithmetic is the reference's, 0.5 % on the fast
// units (docs/performance.md has the measured distances).
constexpr double kReferenceShare = 0.001;
constexpr double kFastShare = 0.005;

struct LogprobDistance {
  double sum = 0, largest = 0;
  int64_t count = 0;
  void add(double difference) {
    sum += std::abs(difference);
    largest = std::max(largest, std::abs(difference));
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

// |log-prob difference| over the recorded top lists of one prompt.
LogprobDistance top_distance(SequenceRunner& runner, const std::vector<int32_t>& ids,
                             const json::array& top_lists) {
  LogprobDistance distance;
  runner.restart();
  runner.append(ids, 0, [&](int64_t position, std::span<const float> logits) {
    for (const json::value& entry : top_lists.at(static_cast<size_t>(position)).as_array()) {
      const auto id = entry.at(0).to_number<int32_t>();
      distance.add(log_probability(logits, id) - entry.at(1).to_number<double>());
    }
  });
  return distance;
}

VerifyRow prompt_row(SequenceRunner& runner, const json::object& recorded) {
  const auto ids = json::value_to<std::vector<int32_t>>(recorded.at("ids"));
  const auto expected = json::value_to<std::vector<int32_t>>(recorded.at("greedy"));
  runner.restart();
  const auto greedy = runner.generate_greedy(ids, static_cast<int>(expected.size()));
  VerifyRow row;
  row.item = json::serialize(recorded.at("text"));
  row.passed = greedy == expected;
  size_t equal = 0;
  while (equal < greedy.size() && greedy[equal] == expected[equal]) ++equal;
  row.details = fmt::format("{} of {} greedy ids equal", equal, expected.size());
  if (const json::value* top = recorded.if_contains("top10")) {
    const LogprobDistance distance = top_distance(runner, ids, top->as_array());
    row.details += fmt::format(", |log-prob difference| mean {:.6f} max {:.6f}", distance.mean(),
                               distance.largest);
  }
  return row;
}

// What is verified, with what it is verified by.
struct Subject {
  Model& model;
  Backend& backend;
  const Tokenizer& tokenizer;
};

PerplexityOptions recorded_windows(const json::object& recorded, int64_t max_windows) {
  PerplexityOptions windows;
  windows.window_tokens = recorded.at("window_tokens").to_number<int64_t>();
  windows.max_windows = recorded.at("windows").to_number<int64_t>();
  if (max_windows > 0) windows.max_windows = std::min(windows.max_windows, max_windows);
  if (!recorded.at("bos").is_null()) windows.bos_id = recorded.at("bos").to_number<int32_t>();
  return windows;
}

Result<VerifyRow> perplexity_row(const Subject& subject, const ModelRecord& record,
                                 const json::object& recorded) {
  const auto ids = TRY(subject.tokenizer.encode(*record.text, false));
  const PerplexityOptions windows = recorded_windows(recorded, record.max_windows);
  auto runner = TRY(SequenceRunner::create(subject.model, subject.backend, windows.window_tokens));
  const PerplexityResult result = TRY(measure_perplexity(runner, ids, windows));
  const auto expected = json::value_to<std::vector<double>>(recorded.at("mean_nll_per_window"));
  double mean = 0;
  for (size_t i = 0; i < result.mean_nll_per_window.size(); ++i) mean += expected.at(i);
  mean /= static_cast<double>(result.mean_nll_per_window.size());
  const double share = std::abs(result.perplexity / std::exp(mean) - 1.0);
  const double allowed = subject.backend.isa() == "reference" ? kReferenceShare : kFastShare;
  VerifyRow row;
  row.item = fmt::format("perplexity over {} windows", result.mean_nll_per_window.size());
  row.passed = share <= allowed;
  row.details = fmt::format("{:.4f}, recorded {:.4f}, off by {:.4f} % (allowed {:.1f} %)",
                            result.perplexity, std::exp(mean), share * 100, allowed * 100);
  return row;
}

Result<VerifyRows> all_rows(const Subject& subject, const ModelRecord& record,
                            const json::object& expect) {
  constexpr int64_t kPromptRoom = 1024;
  auto runner = TRY(SequenceRunner::create(subject.model, subject.backend, kPromptRoom));
  VerifyRows rows;
  for (const json::value& recorded : expect.at("prompts").as_array()) {
    rows.push_back(prompt_row(runner, recorded.as_object()));
  }
  if (record.text && expect.contains("perplexity")) {
    rows.push_back(TRY(perplexity_row(subject, record, expect.at("perplexity").as_object())));
  }
  return rows;
}

}  // namespace

Result<VerifyRows> model_rows(Model& model, Backend& backend, const Tokenizer& tokenizer,
                              const ModelRecord& record) {
  try {
    const json::value expect = json::parse(record.expect.text);
    return all_rows({model, backend, tokenizer}, record, expect.as_object());
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kCorrupt, "'{}' is not a file of recorded results: {}",
                      record.expect.path, error.what());
  }
}

}  // namespace headrace
