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

// What the reference recorded of a prompt. Its ids are tokens of the model.
struct RecordedPrompt {
  std::string text;  // quoted
  std::vector<int32_t> ids, greedy;
  const json::array* top_lists = nullptr;  // [id, log-prob] of the likeliest after each id; or null

  int64_t num_tokens() const { return static_cast<int64_t>(ids.size() + greedy.size()); }
};

// Reads a record, and refuses one that was not made of this model.
class RecordReader {
 public:
  RecordReader(const std::string& path, const ModelConfig& config) : path_(path), config_(config) {}

  Result<std::vector<RecordedPrompt>> prompts(const json::array& recorded) const;
  Result<PerplexityOptions> windows(const json::object& recorded, int64_t max_windows) const;

 private:
  Result<RecordedPrompt> prompt(const json::object& recorded, const std::string& what) const;
  Status check_id(int64_t id, const std::string& what) const;
  Status check_top_lists(const RecordedPrompt& prompt, const std::string& what) const;
  Status check_length(int64_t num_tokens, const std::string& what) const;

  const std::string& path_;
  const ModelConfig& config_;
};

// What `reason` says keeps a record from being one of this model.
Error misfit(const std::string& path, std::string_view reason) {
  Error error = make_error(ErrorCode::kUnprocessable, "'{}' was not recorded of this model: {}",
                           path, reason);
  error.hint = "give the record of this model, or the model of this record";
  return error;
}

Status RecordReader::check_id(int64_t id, const std::string& what) const {
  if (id >= 0 && id < config_.vocab_size) return {};
  return misfit(path_, fmt::format("{} has id {}, but ids of its vocabulary are 0 to {}", what, id,
                                   config_.vocab_size - 1));
}

Status RecordReader::check_length(int64_t num_tokens, const std::string& what) const {
  const int64_t limit = config_.max_position_embeddings;
  if (limit == 0 || num_tokens <= limit) return {};
  return misfit(path_, fmt::format("{} takes {} tokens, but it was made for at most {}", what,
                                   num_tokens, limit));
}

Status RecordReader::check_top_lists(const RecordedPrompt& prompt, const std::string& what) const {
  if (prompt.top_lists->size() != prompt.ids.size()) {
    return make_error(ErrorCode::kCorrupt, "'{}': {} has {} ids, but {} lists in top10", path_,
                      what, prompt.ids.size(), prompt.top_lists->size());
  }
  for (const json::value& list : *prompt.top_lists) {
    for (const json::value& entry : list.as_array()) {
      TRY(check_id(entry.at(0).to_number<int64_t>(), "top10 of " + what));
    }
  }
  return {};
}

Result<RecordedPrompt> RecordReader::prompt(const json::object& recorded,
                                            const std::string& what) const {
  RecordedPrompt prompt;
  prompt.text = json::serialize(recorded.at("text"));
  prompt.ids = json::value_to<std::vector<int32_t>>(recorded.at("ids"));
  prompt.greedy = json::value_to<std::vector<int32_t>>(recorded.at("greedy"));
  if (prompt.ids.empty()) {
    return make_error(ErrorCode::kCorrupt, "'{}': {} has no ids, but at least one is needed", path_,
                      what);
  }
  TRY(check_length(prompt.num_tokens(), what));
  for (const int32_t id : prompt.ids) TRY(check_id(id, what));
  if (const json::value* top = recorded.if_contains("top10")) {
    prompt.top_lists = &top->as_array();
    TRY(check_top_lists(prompt, what));
  }
  return prompt;
}

Result<std::vector<RecordedPrompt>> RecordReader::prompts(const json::array& recorded) const {
  std::vector<RecordedPrompt> prompts;
  for (const json::value& entry : recorded) {
    const std::string what = fmt::format("prompt {}", prompts.size());
    prompts.push_back(TRY(prompt(entry.as_object(), what)));
  }
  return prompts;
}

Result<PerplexityOptions> RecordReader::windows(const json::object& recorded,
                                                int64_t max_windows) const {
  PerplexityOptions windows;
  windows.window_tokens = recorded.at("window_tokens").to_number<int64_t>();
  if (windows.window_tokens < 2) {
    return make_error(ErrorCode::kCorrupt, "'{}': window_tokens is {}, but at least 2 are needed",
                      path_, windows.window_tokens);
  }
  TRY(check_length(windows.window_tokens, "a window of the perplexity"));
  windows.max_windows = recorded.at("windows").to_number<int64_t>();
  if (max_windows > 0) windows.max_windows = std::min(windows.max_windows, max_windows);
  if (recorded.at("bos").is_null()) return windows;
  windows.bos_id = recorded.at("bos").to_number<int32_t>();
  TRY(check_id(*windows.bos_id, "bos of the perplexity"));
  return windows;
}

// |log-prob difference| over the recorded top lists of one prompt.
LogprobDistance top_distance(SequenceRunner& runner, const RecordedPrompt& prompt) {
  LogprobDistance distance;
  runner.restart();
  runner.append(prompt.ids, 0, [&](int64_t position, std::span<const float> logits) {
    for (const json::value& entry :
         prompt.top_lists->at(static_cast<size_t>(position)).as_array()) {
      const auto id = entry.at(0).to_number<int32_t>();
      distance.add(log_probability(logits, id) - entry.at(1).to_number<double>());
    }
  });
  return distance;
}

VerifyRow prompt_row(SequenceRunner& runner, const RecordedPrompt& prompt) {
  runner.restart();
  const auto greedy = runner.generate_greedy(prompt.ids, static_cast<int>(prompt.greedy.size()));
  VerifyRow row;
  row.item = prompt.text;
  row.passed = greedy == prompt.greedy;
  size_t equal = 0;
  while (equal < greedy.size() && greedy[equal] == prompt.greedy[equal]) ++equal;
  row.details = fmt::format("{} of {} greedy ids equal", equal, greedy.size());
  if (prompt.top_lists != nullptr) {
    const LogprobDistance distance = top_distance(runner, prompt);
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

Result<VerifyRow> perplexity_row(const Subject& subject, const std::string& text,
                                 const json::object& recorded, const PerplexityOptions& windows) {
  const auto ids = TRY(subject.tokenizer.encode(text, false));
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

// The whole record is read before anything is computed.
Result<VerifyRows> all_rows(const Subject& subject, const ModelRecord& record,
                            const json::object& expect) {
  const RecordReader reader(record.expect.path, subject.model.config());
  const auto prompts = TRY(reader.prompts(expect.at("prompts").as_array()));
  const json::value* perplexity = record.text ? expect.if_contains("perplexity") : nullptr;
  PerplexityOptions windows;
  if (perplexity != nullptr) {
    windows = TRY(reader.windows(perplexity->as_object(), record.max_windows));
  }
  int64_t most_tokens = 0;
  for (const RecordedPrompt& prompt : prompts) {
    most_tokens = std::max(most_tokens, prompt.num_tokens());
  }
  auto runner = TRY(SequenceRunner::create(subject.model, subject.backend, most_tokens));
  VerifyRows rows;
  for (const RecordedPrompt& prompt : prompts) rows.push_back(prompt_row(runner, prompt));
  if (perplexity != nullptr) {
    rows.push_back(TRY(perplexity_row(subject, *record.text, perplexity->as_object(), windows)));
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
