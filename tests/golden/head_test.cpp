// A model's own head for further tokens: it says what the reference says, its guesses are what it
// says, and answers are the same with and without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>
#include <utility>

#include "engine/head_drafter.h"
#include "engine/text_drafter.h"
#include "golden/golden_data.h"
#include "model/config/json_object.h"
#include "model/whole_tables.h"
#include "sim/draft_support.h"
#include "verify/golden.h"
#include "verify/sequence_runner.h"

namespace headrace::golden {
namespace {

constexpr int32_t kChain = 3;  // guesses that are recorded after each token

std::string folder_of(const std::string& name) {
  return (test::archive_root() / "heads" / name).string();
}

std::unique_ptr<Model> load_with_head(const std::string& name, Backend& backend,
                                      int max_batch_tokens = 64) {
  const auto checkpoint = open_folder(folder_of(name));
  EXPECT_TRUE(checkpoint.ok());
  if (!checkpoint.ok()) return nullptr;
  auto model =
      Model::load(**checkpoint, backend,
                  {.max_batch_tokens = max_batch_tokens, .max_logit_rows = 64, .prediction = true});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? std::move(model).value() : nullptr;
}

// Of a prompt: the head's guesses after each token of its continuation.
std::vector<std::vector<std::vector<int32_t>>> recorded_guesses(const std::string& name) {
  std::stringstream text;
  text << std::ifstream(folder_of(name) + "/expect.json").rdbuf();
  const auto json = parse_json_object(text.str(), "expect.json");
  std::vector<std::vector<std::vector<int32_t>>> prompts;
  for (const auto& prompt : json->at("prompts").as_array()) {
    auto& chains = prompts.emplace_back();
    for (const auto& chain : prompt.at("guesses").as_array()) {
      auto& ids = chains.emplace_back();
      for (const auto& id : chain.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
    }
  }
  return prompts;
}

// One forward pass over all rows, from an empty store: logits of each, and states.
struct Rows {
  std::vector<float> logits, states;
};
Rows run_rows(Model& model, Backend& backend, std::span<const int32_t> ids, const float* states) {
  const auto num_rows = static_cast<int32_t>(ids.size());
  const ModelConfig& config = model.config();
  const CacheLayout layout = plan_cache(model.cache_groups(), backend);
  const WholeTables tables = WholeTables::in_order(num_rows, layout.num_columns, 4);
  KvStore store = KvStore::create(backend, layout, 4 * layout.num_columns).value();
  Span span;
  span.num_rows = num_rows;
  span.tables = tables.data();
  span.states = states;
  std::vector<int32_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  Rows found;
  found.logits.resize(ids.size() * static_cast<size_t>(config.vocab_size));
  found.states.resize(ids.size() * static_cast<size_t>(config.hidden_size));
  const auto allocate = [&](size_t num_values) {
    return backend.allocate(num_values * sizeof(float), MemoryUse::kResults).value();
  };
  DeviceMemory logits = allocate(found.logits.size()), hidden = allocate(found.states.size());
  StepOutput output(logits.as<float>());
  output.hidden = hidden.as<float>();
  model.forward(
      Batch{.token_ids = ids, .spans = {&span, 1}, .logit_rows = rows, .hidden_rows = rows}, store,
      output);
  backend.download(logits.as<float>(), std::span(found.logits));
  backend.download(hidden.as<float>(), std::span(found.states));
  return found;
}

std::string share_of(std::span<const float> found, const TensorView& expected, double largest) {
  double difference = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    float value;
    std::memcpy(&value, expected.data + i * sizeof value, sizeof value);
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - value));
    if (!std::isfinite(found[i])) return "not finite";
  }
  return difference <= largest ? "" : fmt::format("{} of at most {}", difference, largest);
}

class HeadGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(HeadGoldenTest, TheHeadSaysWhatTheReferenceSays) {
  for (const std::string isa : {"reference", "auto"}) {
    SCOPED_TRACE(isa);
    const auto backend = backend_for(isa, 2);
    const auto model = load_with_head(GetParam(), *backend);
    ASSERT_TRUE(model != nullptr && model->prediction() != nullptr);
    const auto golden = read_golden(folder_of(GetParam()));
    ASSERT_TRUE(golden.ok()) << golden.error().message;
    const bool has_delta = GetParam() == "qwen3_next";
    const double largest = (has_delta ? 10 : 1) * kGoldenTolerance * golden->max_abs_logit;
    ASSERT_EQ(golden->prompts.size(), 3u);
    for (size_t i = 0; i < golden->prompts.size(); ++i) {
      const GoldenPrompt& prompt = golden->prompts[i];
      const Rows of_model = run_rows(*model, *backend, prompt.ids, nullptr);
      EXPECT_EQ(share_of(of_model.logits, prompt.logits, largest), "") << "prompt " << i;
      const auto next_ids = std::span(prompt.ids).subspan(1);
      const Rows of_head =
          run_rows(*model->prediction(), *backend, next_ids, of_model.states.data());
      const TensorView* expected = golden->expected->find(fmt::format("prompt{}.head_logits", i));
      ASSERT_NE(expected, nullptr);
      ASSERT_EQ(expected->num_elements(), std::ssize(of_head.logits));
      EXPECT_EQ(share_of(of_head.logits, *expected, largest), "") << "prompt " << i;
    }
  }
}

// The head alone, without a drafter: its own states after those of the network.
TEST_P(HeadGoldenTest, ChainsAreThoseOfTheReference) {
  const auto backend = backend_for("auto", 2);
  const auto model = load_with_head(GetParam(), *backend);
  ASSERT_TRUE(model != nullptr && model->prediction() != nullptr);
  const auto golden = read_golden(folder_of(GetParam()));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const auto expected = recorded_guesses(GetParam());
  const auto vocab_size = static_cast<size_t>(model->config().vocab_size);
  const auto width = static_cast<size_t>(model->config().hidden_size);
  for (size_t i = 0; i < golden->prompts.size(); ++i) {
    const GoldenPrompt& prompt = golden->prompts[i];
    for (const size_t count : {1, 6, 12}) {
      std::vector<int32_t> ids = prompt.ids;
      ids.insert(ids.end(), prompt.greedy.begin(),
                 prompt.greedy.begin() + static_cast<ptrdiff_t>(count));
      std::vector<float> states = run_rows(*model, *backend, ids, nullptr).states;
      states.resize(states.size() - width);  // of the last token the head knows nothing yet
      std::vector<int32_t> guesses;
      for (int32_t n = 0; n < kChain; ++n) {
        const Rows said =
            run_rows(*model->prediction(), *backend, std::span(ids).subspan(1), states.data());
        guesses.push_back(argmax(std::span(said.logits).last(vocab_size)));
        ids.push_back(guesses.back());
        states.insert(states.end(), said.states.end() - static_cast<ptrdiff_t>(width),
                      said.states.end());
      }
      EXPECT_EQ(guesses, expected[i][count - 1]) << "prompt " << i << " after " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, HeadGoldenTest,
                         testing::Values("glm4_moe", "deepseek_v3", "qwen3_next"));

// Notes what another guesses.
class NotingDrafter final : public Drafter {
 public:
  explicit NotingDrafter(Drafter* inner) : inner_(inner) {}

  DraftSource source() const override { return inner_->source(); }
  bool wants_states() const override { return inner_->wants_states(); }
  void observe(const Sequence& sequence, int64_t first_position,
               std::span<const float> states) override {
    inner_->observe(sequence, first_position, states);
  }
  int32_t keep_up(std::span<Sequence* const> sequences, bool may_run) override {
    return inner_->keep_up(sequences, may_run);
  }
  int32_t propose(std::span<DraftTask> tasks) override {
    const int32_t num_runs = inner_->propose(tasks);
    for (const DraftTask& task : tasks) {
      const std::vector<int32_t>& ids = task.draft.token_ids;
      notes.push_back({task.sequence->id, task.sequence->num_output(), task.max_tokens, ids});
    }
    return num_runs;
  }
  void forget(RequestId id) override { inner_->forget(id); }

  struct Note {
    RequestId id;
    int32_t num_output;
    int32_t max_tokens;
    std::vector<int32_t> ids;
  };
  std::vector<Note> notes;

 private:
  Drafter* inner_;
};

class HeadDraftTest : public testing::TestWithParam<std::string> {
 protected:
  void load(int max_batch_tokens = 64) {
    backend_ = backend_for("reference", 2);
    model_ = load_with_head(GetParam(), *backend_, max_batch_tokens);
    ASSERT_TRUE(model_ != nullptr && model_->prediction() != nullptr);
    options_.max_batch_tokens = max_batch_tokens;
    options_.max_logit_rows = 32;
    options_.max_sequences = 6;
    options_.num_blocks = 64;
    options_.max_context = 128;
    options_.drafts_must_pay = false;
    options_.max_draft_tokens = kChain;
    options_.vocab_size = model_->config().vocab_size;
  }
  // With a drafter of its own.
  CoreRun run(const std::vector<Request>& requests) {
    SchedulerOptions target = options_;
    target.cache_rules = plan_cache(model_->cache_groups(), *backend_).rules;
    auto drafter = HeadDrafter::create(*model_->prediction(), *backend_, target);
    EXPECT_TRUE(drafter.ok());
    return run_with(drafter->get(), requests);
  }
  CoreRun run_with(Drafter* drafter, const std::vector<Request>& requests) {
    SchedulerOptions options = options_;
    options.model_drafter = drafter;
    return run_core(*model_, *backend_, options, requests);
  }
  // Greedy ones and drawn ones, some with the same beginning.
  std::vector<Request> requests(int32_t num_tokens = 30) const {
    std::vector<Request> made(8);
    for (size_t i = 0; i < made.size(); ++i) {
      const auto kind = static_cast<int32_t>(i / 2);
      for (int32_t t = 0; t < 18 + 9 * kind; ++t) {
        made[i].prompt_ids.push_back((t * 37 + kind * 11 + 3) % 96);
      }
      made[i].max_tokens = num_tokens;
      made[i].sampling.seed = i;
      made[i].sampling.temperature = i % 3 == 0 ? 0.0f : 0.7f;
      if (i % 4 == 1) made[i].num_logprobs = 2;
    }
    made[2].sampling.top_k = 20;
    made[4].sampling.repetition_penalty = 1.1f;
    return made;
  }
  static DraftCounts counts_of(const CoreRun& run) {
    return run.stats.drafts[static_cast<size_t>(DraftSource::kHead)];
  }
  static void expect_same(const CoreRun& found, const CoreRun& expected) {
    ASSERT_EQ(found.collectors.size(), expected.collectors.size());
    for (size_t i = 0; i < expected.collectors.size(); ++i) {
      Collector a = found.collectors[i], b = expected.collectors[i];
      EXPECT_EQ(a.output(), b.output()) << "request " << i;
      EXPECT_TRUE(equal_logprobs(a.logprobs(), b.logprobs())) << "request " << i;
      EXPECT_EQ(a.wait().reason, b.wait().reason) << "request " << i;
    }
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  SchedulerOptions options_;
};

// Alone and together, in chunks of prompts that end anywhere.
TEST_P(HeadDraftTest, GuessesAreWhatTheHeadSays) {
  const auto golden = read_golden(folder_of(GetParam()));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const auto expected = recorded_guesses(GetParam());
  for (const int max_batch_tokens : {64, 17}) {
    SCOPED_TRACE(max_batch_tokens);
    load(max_batch_tokens);
    SchedulerOptions target = options_;
    target.cache_rules = plan_cache(model_->cache_groups(), *backend_).rules;
    auto head = HeadDrafter::create(*model_->prediction(), *backend_, target);
    ASSERT_TRUE(head.ok()) << head.error().message;
    NotingDrafter drafter(head->get());
    std::vector<Request> asked(golden->prompts.size());
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i].prompt_ids = golden->prompts[i].ids;
      asked[i].sampling.temperature = 0;
      asked[i].max_tokens = static_cast<int32_t>(golden->prompts[i].greedy.size()) + 1;
    }
    const CoreRun together = run_with(&drafter, asked);
    size_t num_compared = 0, num_right = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const std::vector<int32_t>& greedy = golden->prompts[i].greedy;
      std::vector<int32_t> output = together.collectors[i].output();
      ASSERT_EQ(output.size(), greedy.size() + 1);
      output.pop_back();
      EXPECT_EQ(output, greedy);
    }
    for (const NotingDrafter::Note& note : drafter.notes) {
      const auto& chains = expected[note.id - 1];
      const auto at = static_cast<size_t>(note.num_output - 1);
      ASSERT_LT(at, chains.size());
      std::vector<int32_t> chain = chains[at];
      chain.resize(std::min(chain.size(), static_cast<size_t>(note.max_tokens)));
      if (note.ids.empty()) continue;  // its rows did not fit into a run of the head
      EXPECT_EQ(note.ids, chain) << "prompt " << note.id - 1 << " after " << note.num_output;
      ++num_compared;
    }
    num_right = counts_of(together).num_accepted;
    EXPECT_GT(num_compared, 8u);
    EXPECT_GT(num_right, 5u);
  }
}

TEST_P(HeadDraftTest, AnswersAreTheSameWithAndWithout) {
  load();
  const CoreRun plain = run_with(nullptr, requests());
  EXPECT_EQ(plain.stats.draft_tokens, 0u);
  const CoreRun drafted = run(requests());
  expect_same(drafted, plain);
  EXPECT_GT(counts_of(drafted).num_tokens, 100u);
  EXPECT_GT(counts_of(drafted).num_accepted, 10u);
  EXPECT_LT(drafted.stats.num_steps, plain.stats.num_steps);
  EXPECT_GT(drafted.stats.cached_tokens, 0u);  // equal beginnings were found
  for (size_t i = 0; i < requests().size(); ++i) {
    const CoreRun alone = run({requests()[i]});
    EXPECT_EQ(alone.collectors[0].output(), plain.collectors[i].output()) << "request " << i;
  }
}

// The head's slots are found again, also where the network has to compute what was found, and the
// other way round.
TEST_P(HeadDraftTest, TheHeadGoesOnWhereItKnowsABeginning) {
  load();
  SchedulerOptions target = options_;
  target.cache_rules = plan_cache(model_->cache_groups(), *backend_).rules;
  auto head = HeadDrafter::create(*model_->prediction(), *backend_, target);
  ASSERT_TRUE(head.ok());
  const CoreRun plain = run_with(nullptr, requests());
  const CoreRun first = run_with(head->get(), requests());
  const CoreRun second = run_with(head->get(), requests());
  expect_same(first, plain);
  expect_same(second, plain);
  EXPECT_GE(counts_of(second).num_accepted + 12, counts_of(first).num_accepted);
}

TEST_P(HeadDraftTest, PreemptedSequencesSayTheSame) {
  load();
  options_.num_blocks = 16;
  const CoreRun plain = run_with(nullptr, requests(60));
  const CoreRun drafted = run(requests(60));
  expect_same(drafted, plain);
  EXPECT_GT(drafted.stats.num_preemptions, 0u);
  EXPECT_GT(counts_of(drafted).num_tokens, 20u);
}

// With text beside it, by what pays: no step has a time here, so that little is tried.
TEST_P(HeadDraftTest, ThePolicyDecidesBetweenTextAndHead) {
  load();
  const CoreRun plain = run_with(nullptr, requests());
  TextDrafter text;
  options_.drafter = &text;
  expect_same(run(requests()), plain);
  options_.drafts_must_pay = true;
  expect_same(run(requests()), plain);
}

INSTANTIATE_TEST_SUITE_P(Golden, HeadDraftTest,
                         testing::Values("glm4_moe", "deepseek_v3", "qwen3_next"));

}  // namespace
}  // namespace headrace::golden
