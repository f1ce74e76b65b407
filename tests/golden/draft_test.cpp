// Steps that verify guesses say what plain decoding says: tokens, log-probs and ends, bit for bit,
// with a mask on every sampled row.
#include <gtest/gtest.h>

#include "engine/model_drafter.h"
#include "engine/text_drafter.h"
#include "golden/golden_data.h"
#include "sim/draft_support.h"
#include "verify/golden.h"

namespace headrace::golden {
namespace {

constexpr int kMaxDraft = 3;

std::unique_ptr<Model> load(const std::string& path, Backend& backend,
                            int32_t max_batch_tokens = 64) {
  auto checkpoint = open_folder(path);
  EXPECT_TRUE(checkpoint.ok());
  if (!checkpoint.ok()) return nullptr;
  const ModelOptions options = {.max_batch_tokens = max_batch_tokens, .max_logit_rows = 32};
  auto model = Model::load(**checkpoint, backend, options);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? std::move(model).value() : nullptr;
}

SchedulerOptions options_for(Drafter* drafter) {
  SchedulerOptions options;
  options.max_batch_tokens = 64;
  options.max_logit_rows = 32;
  options.max_sequences = 6;
  options.num_blocks = 64;
  options.max_context = 128;
  options.drafter = drafter;
  options.drafts_must_pay = false;
  options.max_draft_tokens = drafter == nullptr ? 0 : kMaxDraft;
  return options;
}

// Greedy without and with log-probs, drawn, filtered, penalised, biased, with a stop id; with DRY,
// with filters of both ends and an end for loops, with mirostat and bad words.
std::vector<Request> requests(int64_t vocab_size) {
  std::vector<Request> requests(9);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    for (int32_t t = 0; t < static_cast<int32_t>(5 + 9 * i); ++t) {
      request.prompt_ids.push_back(
          static_cast<int32_t>((t * 37 + static_cast<int32_t>(i) * 11 + 3) % vocab_size));
    }
    request.max_tokens = 24;
    request.sampling.seed = i;
    request.sampling.temperature = i < 2 ? 0.0f : 0.9f;
    if (i != 0) request.num_logprobs = 2;
  }
  requests[3].sampling.top_k = 40;
  requests[3].sampling.top_p = 0.95f;
  requests[4].sampling.repetition_penalty = 1.3f;
  requests[4].sampling.frequency_penalty = 0.4f;
  requests[5].min_tokens = 4;
  requests[5].sampling.logit_bias = {{7, 3.0f}, {9, -4.0f}};
  requests[5].stop_ids = {7};
  requests[6].sampling.dry = {2.0f, 1.5f, /*allowed_length=*/1, -1, nullptr};
  requests[6].sampling.presence_penalty = 0.3f;
  requests[7].sampling.typical_p = 0.7f;
  requests[7].sampling.top_n_sigma = 3;
  requests[7].sampling.xtc_probability = 0.5f;
  requests[7].sampling.xtc_threshold = 0.01f;
  requests[7].repetition_stop = {1, 4, 2};
  requests[8].sampling.mirostat = true;
  requests[8].sampling.mirostat_tau = 3;
  requests[8].sampling.bad_words = {{5}, {3, 4}};
  return requests;
}

void expect_same_answers(const CoreRun& found, const CoreRun& expected) {
  ASSERT_EQ(found.collectors.size(), expected.collectors.size());
  for (size_t i = 0; i < expected.collectors.size(); ++i) {
    Collector a = found.collectors[i], b = expected.collectors[i];
    EXPECT_EQ(a.output(), b.output()) << "request " << i;
    EXPECT_TRUE(equal_logprobs(a.logprobs(), b.logprobs())) << "request " << i;
    const Event end_a = a.wait(), end_b = b.wait();
    EXPECT_EQ(end_a.reason, end_b.reason) << "request " << i;
    EXPECT_EQ(end_a.stop_id, end_b.stop_id);
    EXPECT_EQ(end_a.repeats, end_b.repeats);
    EXPECT_EQ(end_a.usage.output_tokens, end_b.usage.output_tokens);
  }
}

class DraftTest : public testing::TestWithParam<const char*> {};

TEST_P(DraftTest, GuessesUnderMasksEqualPlainDecoding) {
  const auto backend = backend_for("auto", 2);
  const auto model = load((test::archive_root() / "tiny" / GetParam()).string(), *backend);
  ASSERT_NE(model, nullptr);
  const int64_t vocab_size = model->config().vocab_size;
  for (const bool masked : {false, true}) {
    const std::vector<int64_t> salts =
        masked ? std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8} : std::vector<int64_t>{};
    const CoreRun plain =
        run_core(*model, *backend, options_for(nullptr), requests(vocab_size), salts);
    EXPECT_EQ(plain.stats.draft_tokens, 0u);
    // All right, some wrong, all wrong.
    for (const uint64_t errors_per_8 : {0, 3, 8}) {
      SCOPED_TRACE(testing::Message() << (masked ? "masked, " : "") << errors_per_8 << "/8 wrong");
      TellingDrafter drafter(outputs_of(plain), static_cast<int32_t>(vocab_size), errors_per_8);
      const CoreRun drafted =
          run_core(*model, *backend, options_for(&drafter), requests(vocab_size), salts);
      expect_same_answers(drafted, plain);
      const SchedulerStats& stats = drafted.stats;
      EXPECT_GT(stats.draft_tokens, 40u);
      if (errors_per_8 == 0) {
        EXPECT_EQ(stats.accepted_tokens, stats.draft_tokens);
        if (stats.num_epoch_restarts == 0) {
          EXPECT_LT(stats.num_steps, plain.stats.num_steps);
        }
      } else if (errors_per_8 == 8) {
        EXPECT_EQ(stats.accepted_tokens, 0u);
      } else {
        EXPECT_GT(stats.accepted_tokens, stats.draft_tokens / 5);
        EXPECT_LT(stats.accepted_tokens, stats.draft_tokens);
      }
    }
    if (!masked) continue;
    for (size_t i = 0; i < salts.size(); ++i) {
      const std::vector<int32_t> output = plain.collectors[i].output();
      for (size_t n = 0; n < output.size(); ++n) {
        EXPECT_TRUE(EveryThirdForbidden::allows(salts[i], static_cast<int64_t>(n), output[n]));
      }
    }
  }
}

// The client expects the answers that come, but for a few tokens.
TEST_P(DraftTest, GuessesOfAPredictionEqualPlainDecoding) {
  const auto backend = backend_for("auto", 2);
  const auto model = load((test::archive_root() / "tiny" / GetParam()).string(), *backend);
  ASSERT_NE(model, nullptr);
  std::vector<Request> asked = requests(model->config().vocab_size);
  const CoreRun plain = run_core(*model, *backend, options_for(nullptr), asked);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].predicted_ids = plain.collectors[i].output();
    if (asked[i].predicted_ids.size() > 12) asked[i].predicted_ids[12] ^= 1;
  }
  TextDrafter drafter;
  const CoreRun drafted = run_core(*model, *backend, options_for(&drafter), asked);
  expect_same_answers(drafted, plain);
  if (plain.stats.num_epoch_restarts > 0) return;  // a step for each table: no room for guesses
  const DraftCounts& counts = drafted.stats.drafts[static_cast<size_t>(DraftSource::kPrediction)];
  EXPECT_GT(counts.num_accepted, 40u);
  EXPECT_LT(counts.num_accepted, counts.num_tokens);
  EXPECT_LT(drafted.stats.num_steps, plain.stats.num_steps);
}

// Drafting models have no state.
class ModelDraftTest : public DraftTest {};

// A model that drafts for itself: what it guesses comes true, drawn or not, and others' prompts are
// caught up with meanwhile.
TEST_P(ModelDraftTest, GuessesOfAModelEqualPlainDecoding) {
  const auto backend = backend_for("auto", 2), draft_backend = backend_for("auto", 2);
  const std::string path = (test::archive_root() / "tiny" / GetParam()).string();
  const auto model = load(path, *backend), draft_model = load(path, *draft_backend);
  ASSERT_TRUE(model != nullptr && draft_model != nullptr);
  const std::vector<Request> asked = requests(model->config().vocab_size);
  const CoreRun plain = run_core(*model, *backend, options_for(nullptr), asked);
  SchedulerOptions options = options_for(nullptr);
  options.vocab_size = model->config().vocab_size;
  const auto drafter = ModelDrafter::create(*draft_model, *draft_backend, options);
  ASSERT_TRUE(drafter.ok()) << drafter.error().message;
  TextDrafter text;
  for (const bool with_text : {false, true}) {
    options.drafter = with_text ? &text : nullptr;
    options.model_drafter = drafter->get();
    options.max_draft_tokens = kMaxDraft;
    options.drafts_must_pay = false;
    const CoreRun drafted = run_core(*model, *backend, options, asked);
    expect_same_answers(drafted, plain);
    const DraftCounts& counts = drafted.stats.drafts[static_cast<size_t>(DraftSource::kModel)];
    if (plain.stats.num_epoch_restarts > 0) continue;
    EXPECT_GT(counts.num_tokens, 60u);
    EXPECT_GT(counts.num_accepted, counts.num_tokens * 3 / 4);  // where an answer ends, not
  }
}

// Six sequences that lack up to eight rows each do not fit into one run of the smaller model.
TEST_P(ModelDraftTest, AModelOfSmallStepsGuessesInSeveral) {
  const auto backend = backend_for("auto", 2), draft_backend = backend_for("auto", 2);
  const std::string path = (test::archive_root() / "tiny" / GetParam()).string();
  const auto model = load(path, *backend), draft_model = load(path, *draft_backend, 11);
  ASSERT_TRUE(model != nullptr && draft_model != nullptr);
  std::vector<Request> asked = requests(model->config().vocab_size);
  for (Request& request : asked) request.max_tokens = 48;
  const CoreRun plain = run_core(*model, *backend, options_for(nullptr), asked);
  SchedulerOptions options = options_for(nullptr);
  options.vocab_size = model->config().vocab_size;
  const auto drafter = ModelDrafter::create(*draft_model, *draft_backend, options);
  ASSERT_TRUE(drafter.ok()) << drafter.error().message;
  options.model_drafter = drafter->get();
  options.max_draft_tokens = kMaxDraft;
  const CoreRun drafted = run_core(*model, *backend, options, asked);
  expect_same_answers(drafted, plain);
  if (plain.stats.num_epoch_restarts > 0) return;
  EXPECT_GT(drafted.stats.drafts[static_cast<size_t>(DraftSource::kModel)].num_accepted, 20u);
}

// One model of each kind of layer: plain, windows, a rope table that changes with the length; and
// with state beside attention or alone: delta rules, short convolutions, scans.
INSTANTIATE_TEST_SUITE_P(Golden, DraftTest,
                         testing::Values("llama", "gemma3", "llama_dynamic", "phi3_longrope",
                                         "qwen3_next", "kimi_linear", "lfm2", "mamba2",
                                         "granitemoehybrid"));
INSTANTIATE_TEST_SUITE_P(Golden, ModelDraftTest,
                         testing::Values("llama", "gemma3", "llama_dynamic", "phi3_longrope"));

}  // namespace
}  // namespace headrace::golden
