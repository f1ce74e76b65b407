// Beam searches on real arithmetic: they find what transformers' generate() finds, and bit for bit
// the same alone, beside others, in small steps, after a pre-emption and from a warm cache.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>
#include <map>

#include "golden/golden_data.h"
#include "sim/draft_support.h"
#include "verify/golden.h"

namespace headrace::golden {
namespace {

std::unique_ptr<Model> load_tiny(const std::string& name, Backend& backend) {
  auto checkpoint = open_folder((test::archive_root() / "tiny" / name).string());
  EXPECT_TRUE(checkpoint.ok()) << name;
  if (!checkpoint.ok()) return nullptr;
  const ModelOptions options = {.max_batch_tokens = 64, .max_logit_rows = 32};
  auto model = Model::load(**checkpoint, backend, options);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? std::move(model).value() : nullptr;
}

SchedulerOptions wide_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 64;
  options.max_logit_rows = 32;
  options.max_sequences = 32;
  options.num_blocks = 1024;
  options.max_context = 160;
  return options;
}

// tests/data/beams.json by model: what is asked, and what was found.
struct RecordedSearch {
  Request request;
  std::vector<BeamHypothesis> found;
  bool has_scores = false;
};

Request request_of(const boost::json::object& record, const Golden& golden) {
  Request request;
  request.prompt_ids =
      golden.prompts[static_cast<size_t>(record.at("prompt").to_number<int64_t>())].ids;
  request.max_tokens = record.at("max_new_tokens").to_number<int32_t>();
  request.beams.width = record.at("num_beams").to_number<int32_t>();
  request.beams.num_returned = record.at("num_return_sequences").to_number<int32_t>();
  request.beams.length_penalty = record.at("length_penalty").to_number<float>();
  const boost::json::value& stopping = record.at("early_stopping");
  request.beams.early_stopping = stopping.is_string()  ? EarlyStopping::kNever
                                 : stopping.get_bool() ? EarlyStopping::kYes
                                                       : EarlyStopping::kNo;
  for (const auto& id : record.at("ends").get_array()) {
    request.stop_ids.push_back(id.to_number<int32_t>());
  }
  if (const auto* penalty = record.if_contains("repetition_penalty")) {
    request.sampling.repetition_penalty = penalty->to_number<float>();
  }
  if (const auto* least = record.if_contains("min_new_tokens")) {
    request.min_tokens = least->to_number<int32_t>();
  }
  return request;
}

std::map<std::string, std::vector<RecordedSearch>> recorded_searches() {
  std::ifstream file(std::filesystem::path(HEADRACE_SOURCE_DIR) / "tests/data/beams.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const boost::json::value json = boost::json::parse(text);
  std::map<std::string, std::vector<RecordedSearch>> searches;
  for (const boost::json::value& each : json.at("cases").get_array()) {
    const boost::json::object& record = each.get_object();
    const std::string model(record.at("model").get_string());
    const Golden golden = read_golden((test::archive_root() / "tiny" / model).string()).value();
    RecordedSearch search{request_of(record, golden), {}, false};
    for (const boost::json::value& found : record.at("found").get_array()) {
      BeamHypothesis& hypothesis = search.found.emplace_back();
      for (const auto& id : found.at("ids").get_array()) {
        hypothesis.token_ids.push_back(id.to_number<int32_t>());
      }
      hypothesis.stop_id = found.at("stop_id").to_number<int32_t>();
      search.has_scores = !found.at("score").is_null();
      if (search.has_scores) hypothesis.score = found.at("score").to_number<double>();
    }
    searches[model].push_back(std::move(search));
  }
  return searches;
}

// All searches of a model side by side.
TEST(Beams, FindWhatTransformersFinds) {
  const auto backend = backend_for("reference", 2);
  size_t num_searches = 0;
  for (const auto& [name, searches] : recorded_searches()) {
    const auto model = load_tiny(name, *backend);
    ASSERT_NE(model, nullptr);
    std::vector<Request> requests;
    for (const RecordedSearch& search : searches) requests.push_back(search.request);
    CoreRun run = run_core(*model, *backend, wide_options(), requests);
    for (size_t i = 0; i < searches.size(); ++i) {
      SCOPED_TRACE(testing::Message() << name << ", search " << i);
      const Event end = run.collectors[i].wait();
      ASSERT_EQ(end.hypotheses.size(), searches[i].found.size()) << end.error.message;
      for (size_t k = 0; k < end.hypotheses.size(); ++k) {
        const BeamHypothesis &found = end.hypotheses[k], &wanted = searches[i].found[k];
        EXPECT_EQ(found.token_ids, wanted.token_ids) << "hypothesis " << k;
        EXPECT_EQ(found.stop_id, wanted.stop_id) << "hypothesis " << k;
        if (searches[i].has_scores) {
          EXPECT_NEAR(found.score, wanted.score, 1e-3 * std::abs(wanted.score));
        }
      }
      ++num_searches;
    }
  }
  EXPECT_GT(num_searches, 90u);
}

Request plain_request(int32_t first, int32_t length) {
  Request request;
  for (int32_t i = 0; i < length; ++i) request.prompt_ids.push_back((first + 7 * i) % 250);
  request.max_tokens = 40;
  request.ignore_eos = true;
  return request;
}

void expect_same_bits(const Event& a, const Event& b) {
  ASSERT_EQ(a.hypotheses.size(), b.hypotheses.size()) << a.error.message << b.error.message;
  for (size_t i = 0; i < a.hypotheses.size(); ++i) {
    EXPECT_EQ(a.hypotheses[i].token_ids, b.hypotheses[i].token_ids);
    EXPECT_EQ(a.hypotheses[i].score, b.hypotheses[i].score);
    EXPECT_EQ(a.hypotheses[i].logprob, b.hypotheses[i].logprob);
  }
}

class BeamBits : public testing::TestWithParam<const char*> {};

TEST_P(BeamBits, AreTheSameWhateverElseRuns) {
  const auto backend = backend_for("reference", 2);
  const auto model = load_tiny(GetParam(), *backend);
  ASSERT_NE(model, nullptr);
  Request search = plain_request(3, 37);
  search.beams = {4, 4, 1, EarlyStopping::kNo};
  search.sampling.frequency_penalty = 0.2f;
  const auto run = [&](const SchedulerOptions& options, const std::vector<Request>& requests) {
    return run_core(*model, *backend, options, requests);
  };
  const Event alone = run(wide_options(), {search}).collectors[0].wait();
  ASSERT_EQ(alone.hypotheses.size(), 4u);
  CoreRun beside = run(wide_options(), {plain_request(9, 20), search, plain_request(3, 60)});
  expect_same_bits(beside.collectors[1].wait(), alone);
  SchedulerOptions small = wide_options();
  small.max_batch_tokens = small.max_sequences = 5;
  CoreRun in_small_steps = run(small, {plain_request(9, 20), search});
  expect_same_bits(in_small_steps.collectors[1].wait(), alone);
  // The second starts when the first has ended.
  SchedulerOptions one_by_one = wide_options();
  one_by_one.max_sequences = 4;
  CoreRun warm = run(one_by_one, {search, search});
  expect_same_bits(warm.collectors[0].wait(), alone);
  expect_same_bits(warm.collectors[1].wait(), alone);
}

// As few blocks as the search needs when it is alone, beside older ones that grow.
class BeamPreemption : public testing::TestWithParam<const char*> {};

TEST_P(BeamPreemption, ChangesNothing) {
  const auto backend = backend_for("reference", 2);
  const auto model = load_tiny(GetParam(), *backend);
  ASSERT_NE(model, nullptr);
  Request search = plain_request(3, 37);
  search.beams = {4, 4, 1, EarlyStopping::kNo};
  std::vector<Request> requests;
  for (int32_t i = 0; i < 8; ++i) {
    requests.push_back(plain_request(9 + 11 * i, 60));
    requests.back().max_tokens = 90;
  }
  requests.push_back(search);
  SchedulerOptions options = wide_options();
  options.cache_rules = plan_cache(model->cache_groups(), *backend).rules;
  options.rope_epoch = [&](int64_t count) { return model->rope_epoch(count); };
  const BeamLimits limits = beam_limits_of(options);
  const Event alone = run_core(*model, *backend, options, {search}).collectors[0].wait();
  options.num_blocks = std::max(limits.most_blocks(4, 37, 77),
                                most_blocks(options.cache_rules, options.max_context, 64));
  CoreRun pressed = run_core(*model, *backend, options, requests);
  expect_same_bits(pressed.collectors.back().wait(), alone);
  EXPECT_GT(pressed.stats.num_preemptions, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, BeamPreemption,
                         testing::Values("llama", "qwen3_next", "phi3_longrope"));
// Full attention, windows, recurrent states, rope tables that change at 48 tokens.
INSTANTIATE_TEST_SUITE_P(Models, BeamBits,
                         testing::Values("llama", "gemma3", "qwen3_next", "phi3_longrope"));

}  // namespace
}  // namespace headrace::golden
