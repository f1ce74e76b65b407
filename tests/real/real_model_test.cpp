// Real models against recorded results, through `headrace verify`, and bit-invariance of SmolLM2.
//
// HEADRACE_TEST_MODELS is a folder with smollm2-135m.gguf, gemma3-270m.gguf and
// qwen2.5-coder-0.5b.gguf (or subfolders of the model store); without it the tests are skipped and
// say so. The fast unit is held to every recorded prompt and to the first perplexity windows, the
// reference unit, some ten times slower, to the beginnings of as many prompts as the row says.
// HEADRACE_FULL=1 holds both to everything (over half an hour on two cores).

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "checkpoint/checkpoint.h"
#include "cli/testing/program.h"
#include "model/model.h"
#include "model/whole_tables.h"
#include "real/real_models.h"
#include "verify/sequence_runner.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::Outcome;
using testing::run_program;

class RealModels : public ::testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    const auto model = find_model_file(GetParam().stem);
    if (!model) GTEST_SKIP() << "set HEADRACE_TEST_MODELS to test " << GetParam().stem;
    model_ = *model;
    expect_ = golden_file(std::string("real/") + GetParam().expect);
  }

  // `files`: the recorded results, and the text to score if any.
  void verify_model(const std::string& isa, const std::string& files, int num_checks) {
    const Outcome outcome =
        run_program("verify model '" + model_ + "' " + files + " --kv-type f32 --isa " + isa);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    const std::string count = std::to_string(num_checks);
    EXPECT_NE(outcome.text.find(count + " checked, " + count + " passed, 0 failed"),
              std::string::npos)
        << outcome.text;
    std::printf("%s\n", outcome.text.c_str());
  }

  // Every prompt and the first windows of the text; 0: all that are recorded.
  void verify_all(const std::string& isa, int windows) {
    verify_model(
        isa,
        "'" + expect_ + "' '" + golden_file("text.txt") + "' --windows " + std::to_string(windows),
        6);
  }

  std::string model_, expect_;
};

TEST_P(RealModels, ReferenceUnitGivesTheRecordedIds) {
  if (wants_everything()) return verify_all("reference", 0);
  const std::string path = ::testing::TempDir() + "beginnings-" + std::to_string(getpid());
  std::ofstream(path) << beginnings_of(expect_, GetParam().reference_prompts,
                                       GetParam().reference_ids);
  verify_model("reference", "'" + path + "'", GetParam().reference_prompts);
  fs::remove(path);
}

TEST_P(RealModels, FastUnitGivesTheRecordedIdsAndPerplexity) {
  verify_all("auto", wants_everything() ? 0 : GetParam().fast_windows);
}

TEST_P(RealModels, TokenizerOfTheFileGivesTheRecordedIds) {
  const std::string expect = golden_file(std::string("tokenizers/") + GetParam().tokenizer);
  const Outcome outcome = run_program("verify tokenizer '" + model_ + "' '" + expect + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("314 checked, 314 passed"), std::string::npos) << outcome.text;
}

INSTANTIATE_TEST_SUITE_P(All, RealModels, ::testing::ValuesIn(kModels),
                         [](const auto& row) { return name_of(row.param); });

// Logits after every token of a prompt, one way of computing them.
struct LogitRun {
  std::string what;
  std::vector<float> logits;
};

std::vector<int32_t> some_ids(int count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  uint64_t state = 7;
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

class Invariance : public ::testing::TestWithParam<std::string> {
 protected:
  // More than two blocks and a part; the plain unit takes its time.
  static int num_tokens() { return GetParam() == "reference" ? 40 : 70; }

  void SetUp() override {
    const auto file = find_model_file("smollm2-135m");
    if (!file) GTEST_SKIP() << "set HEADRACE_TEST_MODELS to test SmolLM2";
    checkpoint_ = Checkpoint::open(*file).value();
  }

  // A fresh back end, model and cache each time: a restart.
  void load(int num_threads) {
    model_.reset();
    auto backend = create_cpu_backend({GetParam(), num_threads});
    if (!backend.ok()) GTEST_SKIP() << backend.error().message;
    backend_ = std::move(backend).value();
    model_ = Model::load(*checkpoint_, *backend_, {}).value();
  }

  LogitRun chunked(const std::string& what, int chunk_tokens) {
    LogitRun run{what, {}};
    auto runner = SequenceRunner::create(*model_, *backend_, num_tokens(), chunk_tokens).value();
    runner.append(some_ids(num_tokens(), model_->config().vocab_size), 0,
                  [&](int64_t, std::span<const float> logits) {
                    run.logits.insert(run.logits.end(), logits.begin(), logits.end());
                  });
    return run;
  }

  // The same sequence as the second of three in one batch, among other tokens.
  LogitRun batched() {
    constexpr int kBefore = 33, kAfter = 21, kKept = 16;
    const int count = num_tokens();
    const int64_t vocab_size = model_->config().vocab_size;
    const auto ids = some_ids(num_tokens(), vocab_size);
    auto others = some_ids(kBefore + kAfter + 5, vocab_size);
    std::vector<int32_t> all(others.begin() + 5, others.begin() + 5 + kBefore);
    all.insert(all.end(), ids.begin(), ids.end());
    all.insert(all.end(), others.begin() + 5 + kBefore, others.end());
    const CacheLayout layout = plan_cache(model_->cache_groups(), *backend_);
    const int columns = layout.num_columns;
    auto store = KvStore::create(*backend_, layout, 16 * columns).value();
    const WholeTables tables[] = {WholeTables({9, 3, 7}, columns, 16),
                                  WholeTables({1, 8, 2, 12, 5}, columns, 16),
                                  WholeTables({4, 11}, columns, 16)};
    const Span spans[] = {{0, kBefore, 0, tables[0].data()},
                          {kBefore, count, 0, tables[1].data()},
                          {kBefore + count, kAfter, 0, tables[2].data()}};
    std::vector<int32_t> rows;
    for (int i = count - kKept; i < count; ++i) rows.push_back(kBefore + i);
    LogitRun run{"batched", std::vector<float>(rows.size() * static_cast<size_t>(vocab_size))};
    DeviceMemory logits =
        backend_->allocate(run.logits.size() * sizeof(float), MemoryUse::kResults).value();
    model_->forward(Batch{all, spans, rows}, store, logits.as<float>());
    backend_->download(logits.as<float>(), std::span(run.logits));
    return run;
  }

  // Equal bits in the last rows that both hold.
  static void expect_same_bits(const LogitRun& a, const LogitRun& b) {
    const size_t count = std::min(a.logits.size(), b.logits.size());
    ASSERT_GT(count, 0u);
    EXPECT_EQ(std::memcmp(a.logits.data() + a.logits.size() - count,
                          b.logits.data() + b.logits.size() - count, count * sizeof(float)),
              0)
        << a.what << " against " << b.what;
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

TEST_P(Invariance, AloneChunkedBatchedRestartedAndThreadsGiveTheSameBits) {
  load(2);
  if (IsSkipped()) return;
  const LogitRun alone = chunked("alone", 0);
  ASSERT_EQ(alone.logits.size(),
            static_cast<size_t>(num_tokens()) * static_cast<size_t>(model_->config().vocab_size));
  for (const int chunk : {1, 7, 16, 33}) {
    expect_same_bits(alone, chunked("chunks of " + std::to_string(chunk), chunk));
  }
  expect_same_bits(alone, batched());
  load(1);
  expect_same_bits(alone, chunked("restarted with one thread", 0));
  load(3);
  expect_same_bits(alone, chunked("restarted with three threads", 16));
}

INSTANTIATE_TEST_SUITE_P(SmolLM2, Invariance,
                         ::testing::Values("reference", "avx2", "avx_vnni", "avx512", "avx512_vnni",
                                           "avx512_bf16", "amx"),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace headrace
