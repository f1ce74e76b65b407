// verify model: greedy ids, log-probs and perplexity of a real model against recorded ones.

#include <boost/json.hpp>

#include <cmath>
#include <filesystem>

#include "cli/runtime.h"
#include "cli/verify.h"
#include "verify/perplexity.h"

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

Result<VerifyRow> perplexity_row(const Options& options, Runtime& runtime,
                                 const json::object& recorded, const std::string& text_path) {
  const auto ids = TRY(runtime.text.tokenizer->encode(TRY(read_text(text_path)), false));
  PerplexityOptions windows;
  windows.window_tokens = recorded.at("window_tokens").to_number<int64_t>();
  windows.max_windows = recorded.at("windows").to_number<int64_t>();
  if (options.integer("--windows") > 0) {
    windows.max_windows = std::min(windows.max_windows, options.integer("--windows"));
  }
  if (!recorded.at("bos").is_null()) windows.bos_id = recorded.at("bos").to_number<int32_t>();
  auto runner =
      TRY(SequenceRunner::create(*runtime.model, *runtime.backend, windows.window_tokens));
  const PerplexityResult result = TRY(measure_perplexity(runner, ids, windows));
  const auto expected = json::value_to<std::vector<double>>(recorded.at("mean_nll_per_window"));
  double mean = 0;
  for (size_t i = 0; i < result.mean_nll_per_window.size(); ++i) mean += expected.at(i);
  mean /= static_cast<double>(result.mean_nll_per_window.size());
  const double share = std::abs(result.perplexity / std::exp(mean) - 1.0);
  const double allowed = runtime.backend->isa() == "reference" ? kReferenceShare : kFastShare;
  VerifyRow row;
  row.item = fmt::format("perplexity over {} windows", result.mean_nll_per_window.size());
  row.passed = share <= allowed;
  row.details = fmt::format("{:.4f}, recorded {:.4f}, off by {:.4f} % (allowed {:.1f} %)",
                            result.perplexity, std::exp(mean), share * 100, allowed * 100);
  return row;
}

Result<std::vector<VerifyRow>> all_rows(const Options& options, Runtime& runtime,
                                        const json::object& expect,
                                        const std::vector<std::string>& paths) {
  constexpr int64_t kPromptRoom = 1024;
  auto runner = TRY(SequenceRunner::create(*runtime.model, *runtime.backend, kPromptRoom));
  std::vector<VerifyRow> rows;
  for (const json::value& recorded : expect.at("prompts").as_array()) {
    rows.push_back(prompt_row(runner, recorded.as_object()));
  }
  if (paths.size() > 2 && expect.contains("perplexity")) {
    rows.push_back(
        TRY(perplexity_row(options, runtime, expect.at("perplexity").as_object(), paths[2])));
  }
  return rows;
}

}  // namespace

Result<std::vector<VerifyRow>> verify_model(const Options& options,
                                            const std::vector<std::string>& paths) {
  const std::string text = TRY(read_text(paths[1]));
  Runtime runtime = TRY(open_runtime(options, paths[0]));
  try {
    const json::value expect = json::parse(text);
    return all_rows(options, runtime, expect.as_object(), paths);
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kCorrupt, "'{}' is not a file of recorded results: {}", paths[1],
                      error.what());
  }
}

}  // namespace headrace
