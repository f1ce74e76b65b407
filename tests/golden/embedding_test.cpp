// Vectors of prompts from the engine: equal to the recorded states, and the same bits whatever runs
// beside a prompt, however it is cut, found in the cache or not, with any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/engine.h"
#include "golden/golden_data.h"
#include "sim/collector.h"
#include "verify/golden.h"

namespace headrace::golden {
namespace {

constexpr Pooling kKinds[] = {Pooling::kMean, Pooling::kFirst, Pooling::kLast};

class EmbeddingTest : public ::testing::TestWithParam<std::string> {
 protected:
  struct Loaded {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Model> model;
  };
  Loaded load(int num_threads) {
    Loaded loaded;
    loaded.backend = backend_for("auto", num_threads);
    const auto checkpoint = open_folder(folder()).value();
    loaded.model =
        Model::load(*checkpoint, *loaded.backend, {.max_batch_tokens = 64, .max_logit_rows = 8})
            .value();
    return loaded;
  }
  static std::unique_ptr<Engine> make_engine(Loaded& loaded, int max_batch_tokens) {
    EngineOptions options;
    options.max_batch_tokens = max_batch_tokens;
    options.max_sequences = std::min(8, max_batch_tokens);
    options.num_kv_blocks = 256;
    options.max_context = 128;
    return Engine::create(*loaded.model, *loaded.backend, options, {}).value();
  }
  std::string folder() const { return (test::archive_root() / "tiny" / GetParam()).string(); }

  static Request request_for(std::vector<int32_t> ids, Pooling pooling) {
    Request request;
    request.prompt_ids = std::move(ids);
    request.pooling = pooling;
    request.max_tokens = 0;
    return request;
  }
  static std::vector<std::vector<float>> run(Engine& engine, const std::vector<Request>& requests) {
    std::vector<std::vector<float>> vectors;
    for (Collector& each : run_together(engine, requests)) {
      const Event end = each.wait();
      EXPECT_EQ(end.reason, FinishReason::kStop) << end.error.message;
      vectors.push_back(end.embedding);
    }
    return vectors;
  }
  // Prompts of several lengths, two with a common beginning, of each kind; and one that generates.
  static std::vector<Request> mixed_requests(int64_t vocab_size) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 5; ++i) {
      std::vector<int32_t> ids(static_cast<size_t>(1 + i * 23));
      for (size_t k = 0; k < ids.size(); ++k) {
        const auto value = static_cast<int64_t>(k < 20 ? k * 7 + 3 : k * (k + size_t(i)));
        ids[k] = static_cast<int32_t>(value % vocab_size);
      }
      for (const Pooling pooling : kKinds) requests.push_back(request_for(ids, pooling));
    }
    return requests;
  }
};

TEST_P(EmbeddingTest, EqualsTheRecordedStates) {
  const Golden golden = read_golden(folder()).value();
  Loaded loaded = load(0);
  const auto engine = make_engine(loaded, 7);
  const auto width = static_cast<size_t>(loaded.model->config().hidden_size);
  int num_checked = 0;
  for (const GoldenPrompt& prompt : golden.prompts) {
    if (prompt.hidden.data == nullptr) continue;
    const size_t num_ids = prompt.ids.size();
    const auto* all = reinterpret_cast<const float*>(prompt.hidden.data);
    const float* states =
        all + static_cast<size_t>(loaded.model->config().num_layers()) * num_ids * width;
    std::vector<Request> requests;
    for (const Pooling pooling : kKinds) requests.push_back(request_for(prompt.ids, pooling));
    const auto vectors = run(*engine, requests);
    for (size_t i = 0; i < width; ++i) {
      double sum = 0;
      for (size_t row = 0; row < num_ids; ++row) sum += double{states[row * width + i]};
      EXPECT_NEAR(vectors[0][i], sum / static_cast<double>(num_ids), 1e-3) << i;
      EXPECT_NEAR(vectors[1][i], states[i], 1e-3) << i;
      EXPECT_NEAR(vectors[2][i], states[(num_ids - 1) * width + i], 1e-3) << i;
    }
    ++num_checked;
  }
  EXPECT_GE(num_checked, 1);
}

TEST_P(EmbeddingTest, HasTheSameBitsHoweverItIsComputed) {
  Loaded one_thread = load(1), two_threads = load(2);
  const auto requests = mixed_requests(one_thread.model->config().vocab_size);
  std::vector<std::vector<float>> alone;
  for (const Request& request : requests) {
    alone.push_back(run(*make_engine(one_thread, 64), {request})[0]);
  }
  for (const int chunk : {1, 7, 16, 33, 64}) {
    const auto engine = make_engine(two_threads, chunk);
    EXPECT_EQ(run(*engine, requests), alone) << "together, in steps of " << chunk;
    EXPECT_EQ(run(*engine, requests), alone) << "from the cache, in steps of " << chunk;
  }
}

// Beside answers that generate, whose tokens do not change either.
TEST_P(EmbeddingTest, LeavesTokensBesideItAsTheyAre) {
  Loaded loaded = load(2);
  auto requests = mixed_requests(loaded.model->config().vocab_size);
  Request talks;
  talks.prompt_ids = {1, 2, 3, 4, 5};
  talks.max_tokens = 20;
  talks.sampling.temperature = 0;
  talks.ignore_eos = true;
  const auto alone = run_together(*make_engine(loaded, 64), {talks});
  requests.insert(requests.begin(), talks);
  const auto together = run_together(*make_engine(loaded, 16), requests);
  EXPECT_EQ(together[0].output(), alone[0].output());
}

// Log-probs of labels are those that the first token is drawn from.
TEST_P(EmbeddingTest, LabelsHaveTheLogProbsOfTheFirstToken) {
  Loaded loaded = load(2);
  const auto engine = make_engine(loaded, 64);
  Request request;
  request.prompt_ids = {5, 6, 7, 8, 9, 10};
  request.max_tokens = 3;
  request.sampling.temperature = 0;
  request.num_logprobs = 20;
  const auto listed = run_together(*engine, {request})[0].logprobs();
  ASSERT_FALSE(listed.empty());
  request.num_logprobs.reset();
  for (const auto& [id, logprob] : listed[0]->top) request.label_ids.push_back(id);
  request.label_ids.resize(3);
  std::vector<Event> tokens;
  Collector end;
  ASSERT_TRUE(engine
                  ->submit(request,
                           [&, sink = end.sink()](Event&& event) {
                             if (event.kind == Event::Kind::kToken) tokens.push_back(event);
                             return sink(std::move(event));
                           })
                  .ok());
  end.wait();
  ASSERT_EQ(tokens.size(), 3u);
  ASSERT_EQ(tokens[0].label_logprobs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tokens[0].label_logprobs[i], listed[0]->top[i].second) << i;
  }
  EXPECT_TRUE(tokens[1].label_logprobs.empty());
}

INSTANTIATE_TEST_SUITE_P(Families, EmbeddingTest,
                         ::testing::Values("llama", "qwen3", "gemma3", "qwen3_5", "mixtral",
                                           "deepseek_v3"),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace headrace::golden
