// Mutated files and configurations of whole tiny networks are opened, and those that load are run
// for eight greedy steps on two instruction sets; GGUF files also have their tokenizer built. No
// crash, no memory beyond the file's size plus 64 MiB, no case above one second of CPU (four in
// instrumented code). HEADRACE_FUZZ_CASES and HEADRACE_FUZZ_SEED ask for another number of cases or
// other mutations.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/testing/file_builders.h"
#include "memory_count.h"
#include "model/model.h"
#include "model_seeds.h"
#include "server/api/bundle.h"
#include "verify/sequence_runner.h"

namespace headrace::fuzz {
namespace {

constexpr int64_t kMaxExtraBytes = int64_t{64} << 20;
constexpr double kMaxCpuSeconds = HEADRACE_MAX_CPU_SECONDS;
constexpr int kFileEvery = 16;  // one in so many cases goes through files and Checkpoint::open
constexpr int kNumSteps = 8;
const ModelOptions kOptions = {.max_batch_tokens = 8, .max_logit_rows = 1};

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Safetensors in memory with a config.json in memory.
class WithConfig : public Checkpoint {
 public:
  WithConfig(std::unique_ptr<Checkpoint> tensors, std::string config)
      : tensors_(std::move(tensors)), config_(std::move(config)) {}

  CheckpointKind kind() const override { return tensors_->kind(); }
  const std::string& path() const override { return tensors_->path(); }
  std::span<const std::string> names() const override { return tensors_->names(); }
  const TensorView* find(std::string_view name) const override { return tensors_->find(name); }
  size_t file_bytes() const override { return tensors_->file_bytes() + config_.size(); }
  const Metadata& metadata() const override { return tensors_->metadata(); }
  std::optional<std::string> sidecar(std::string_view file_name) const override {
    return file_name == "config.json" ? std::optional(config_) : std::nullopt;
  }
  std::string fingerprint() const override { return tensors_->fingerprint(); }
  void release_pages() const override { tensors_->release_pages(); }

 private:
  std::unique_ptr<Checkpoint> tensors_;
  std::string config_;
};

struct Case {
  Bytes bytes;
  std::optional<std::string> config;  // of safetensors
};

struct Counts {
  int num_cases = 0;
  int num_opened = 0;
  int num_run = 0;  // on every backend
  int num_bundles = 0;
  int num_rejected = 0;
  int64_t max_extra_bytes = 0;
  double max_cpu_seconds = 0;
  std::set<std::string> reasons;  // messages
  std::set<int32_t> ids;          // generated
};

class MutateModels : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "mutated_models_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    for (const char* isa : {"reference", "auto"}) {
      auto backend = create_cpu_backend({.isa = isa, .num_threads = 1});
      ASSERT_TRUE(backend.ok()) << backend.error().message;
      backends_.push_back(std::move(backend).value());
    }
    // The first tokenizer of a process sets a reserve aside for good, which is no file's.
    const GgufModel first = gguf_models().front();
    const Bytes bytes = gguf_file(first, first.keys).bytes;
    ASSERT_TRUE(TextBundle::load(**parse(bytes, {})).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  template <typename MakeCase>
  void run(int num_cases, const MakeCase& make_case) {
    num_cases = static_cast<int>(
        number_from_environment("HEADRACE_FUZZ_CASES", static_cast<uint64_t>(num_cases)));
    const uint64_t seed = number_from_environment("HEADRACE_FUZZ_SEED", 1);
    std::mt19937_64 random(seed);
    for (int i = 0; i < num_cases; ++i) {
      SCOPED_TRACE("case " + std::to_string(i) + " of seed " + std::to_string(seed));
      run_case(make_case(random), i % kFileEvery == 0);
      if (HasFailure()) return;
    }
    std::printf(
        "%d cases: %d opened, %d run, %d tokenizers built, %d rejected with %zu different "
        "messages; "
        "at most %lld bytes beyond the file's size, %.3f s\n",
        counts_.num_cases, counts_.num_opened, counts_.num_run, counts_.num_bundles,
        counts_.num_rejected, counts_.reasons.size(),
        static_cast<long long>(counts_.max_extra_bytes), counts_.max_cpu_seconds);
    EXPECT_EQ(counts_.num_run + counts_.num_rejected, num_cases);
    EXPECT_GT(counts_.num_run, num_cases / 10);
    EXPECT_GT(counts_.num_rejected, num_cases / 4);
  }

  void run_case(const Case& mutated, bool through_file) {
    // An allocation of exactly this size, so that a sanitizer sees the first byte read beyond it.
    const auto exact = std::make_unique<std::byte[]>(mutated.bytes.size());
    std::copy(mutated.bytes.begin(), mutated.bytes.end(), exact.get());
    const auto path = through_file ? std::optional(write(mutated)) : std::nullopt;
    const size_t num_file_bytes = mutated.bytes.size() + mutated.config.value_or("").size();
    const double start = cpu_seconds();
    const int64_t held_before = reset_memory_peak();
    {
      const auto checkpoint = path ? Checkpoint::open(*path)
                                   : parse({exact.get(), mutated.bytes.size()}, mutated.config);
      const bool loaded = checkpoint.ok() && use(**checkpoint);
      if (!checkpoint.ok()) check_error(checkpoint.error());
      counts_.num_opened += checkpoint.ok();
      ++(loaded ? counts_.num_run : counts_.num_rejected);
    }
    const int64_t extra = memory_peak() - held_before - static_cast<int64_t>(num_file_bytes);
    const double seconds = cpu_seconds() - start;
    counts_.max_extra_bytes = std::max(counts_.max_extra_bytes, extra);
    counts_.max_cpu_seconds = std::max(counts_.max_cpu_seconds, seconds);
    ++counts_.num_cases;
    EXPECT_LE(extra, kMaxExtraBytes);
    EXPECT_LE(seconds, kMaxCpuSeconds);
  }

  std::string folder_;
  std::vector<std::unique_ptr<Backend>> backends_;
  Counts counts_;

 private:
  static Result<std::unique_ptr<Checkpoint>> parse(std::span<const std::byte> bytes,
                                                   const std::optional<std::string>& config) {
    if (!config) return parse_gguf(bytes, "mutated");
    std::unique_ptr<Checkpoint> tensors = TRY(parse_safetensors(bytes, "mutated"));
    return std::unique_ptr<Checkpoint>(std::make_unique<WithConfig>(std::move(tensors), *config));
  }

  std::string write(const Case& mutated) const {
    if (!mutated.config) {
      testing::write_file(folder_ + "/model.gguf", mutated.bytes);
      return folder_ + "/model.gguf";
    }
    testing::write_file(folder_ + "/model.safetensors", mutated.bytes);
    testing::write_file(folder_ + "/config.json", std::as_bytes(std::span(*mutated.config)));
    return folder_;
  }

  // Bad input has a reason; that memory ran out or that the program is at fault is none.
  void check_error(const Error& error) {
    EXPECT_FALSE(error.message.empty());
    EXPECT_NE(error.code, ErrorCode::kInternal) << error.message;
    EXPECT_NE(error.code, ErrorCode::kExhausted) << error.message;
    counts_.reasons.insert(error.message);
  }

  // True if the network was loaded and run.
  bool use(const Checkpoint& checkpoint) {
    if (checkpoint.kind() == CheckpointKind::kGguf) build_tokenizer(checkpoint);
    bool loaded = false;
    for (const auto& backend : backends_) {
      const auto plan = Model::memory_plan(checkpoint, *backend, kOptions);
      const auto model = Model::load(checkpoint, *backend, kOptions);
      EXPECT_EQ(plan.ok(), model.ok());
      if (!model.ok()) {
        check_error(model.error());
        continue;
      }
      loaded = true;
      generate(**model, *backend);
    }
    return loaded;
  }

  void generate(Model& model, Backend& backend) {
    const int64_t vocab_size = model.config().vocab_size;
    const std::vector<int32_t> prompt = {0, static_cast<int32_t>(vocab_size - 1), 0};
    auto runner =
        SequenceRunner::create(model, backend, static_cast<int64_t>(prompt.size()) + kNumSteps);
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    const std::vector<int32_t> ids = runner->generate_greedy(prompt, kNumSteps);
    EXPECT_EQ(ids.size(), size_t{kNumSteps});
    for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < vocab_size) << id;
    counts_.ids.insert(ids.begin(), ids.end());
  }

  void build_tokenizer(const Checkpoint& checkpoint) {
    const auto bundle = TextBundle::load(checkpoint);
    if (!bundle.ok()) return check_error(bundle.error());
    ++counts_.num_bundles;
    const auto size = bundle->tokenizer->vocab_size();
    for (const int32_t id : bundle->end_ids) EXPECT_TRUE(id >= 0 && id < size) << id;
    const auto ids = bundle->encode_prompt("ab  a\n\u00e9", true);
    if (!ids.ok()) return check_error(ids.error());
    for (const int32_t id : *ids) EXPECT_TRUE(id >= 0 && id < size) << id;
    const auto text = bundle->tokenizer->decode(*ids, false);
    if (!text.ok()) check_error(text.error());
  }
};

TEST_F(MutateModels, SeedsRun) {
  int num_models = 0;
  for (const GgufModel& model : gguf_models()) {
    SCOPED_TRACE(model.name);
    run_case({gguf_file(model, model.keys).bytes, {}}, false);
    ++num_models;
    EXPECT_EQ(counts_.num_run, num_models) << ::testing::PrintToString(counts_.reasons);
    EXPECT_EQ(counts_.num_bundles, num_models) << ::testing::PrintToString(counts_.reasons);
  }
  for (const SafetensorsModel& model : safetensors_models()) {
    SCOPED_TRACE(model.seeds.front().name);
    run_case({model.seeds.front().bytes, model.config}, true);
    ++num_models;
    EXPECT_EQ(counts_.num_run, num_models) << ::testing::PrintToString(counts_.reasons);
  }
  EXPECT_EQ(num_models, 17);
  EXPECT_GT(counts_.ids.size(), 8u);  // the seeds compute something
}

// What is recorded of each family.
TEST_F(MutateModels, SeedsOfEveryFamilyRun) {
  for (const SafetensorsModel& model : recorded_models()) {
    SCOPED_TRACE(model.seeds.front().name);
    run_case({model.seeds.front().bytes, model.config}, false);
  }
  for (const GgufModel& model : recorded_gguf_models()) {
    SCOPED_TRACE(model.name);
    run_case({gguf_file(model, model.keys).bytes, {}}, false);
  }
  EXPECT_EQ(counts_.num_run, counts_.num_cases) << ::testing::PrintToString(counts_.reasons);
  EXPECT_GE(counts_.num_run, 45);
  EXPECT_GT(counts_.ids.size(), 4u);
}

TEST_F(MutateModels, CountsWhatIsAllocated) {
  const int64_t before = reset_memory_peak();
  {
    std::vector<char> large(1 << 20);
    asm volatile("" : : "g"(large.data()) : "memory");  // clang leaves out what nobody can see
  }
  EXPECT_GE(memory_peak() - before, int64_t{1} << 20);
  reset_memory_peak();
  {
    const auto buffer = Buffer::allocate(size_t{16} << 20);
    ASSERT_TRUE(buffer.ok());
  }
  EXPECT_GE(memory_peak() - before, int64_t{16} << 20);
  EXPECT_LT(reset_memory_peak() - before, int64_t{1} << 20);
}

// Half of the cases change keys alone, a quarter bytes alone, a quarter both.
TEST_F(MutateModels, Gguf) {
  const std::vector<GgufModel> models = gguf_models();
  run(3'000, [&](std::mt19937_64& random) {
    const GgufModel& model = models[random() % models.size()];
    const uint64_t kind = random() % 4;
    const Seed file = gguf_file(model, kind == 0 ? model.keys : mutate_keys(model, random));
    return Case{kind <= 1 ? mutate({file}, random) : file.bytes, {}};
  });
  EXPECT_GT(counts_.num_bundles, counts_.num_cases / 10);
}

// Networks of odd sizes, half of them with changed keys.
TEST_F(MutateModels, GgufOfOddSizes) {
  run(600, [&](std::mt19937_64& random) {
    const GgufModel model = resized_gguf_model(random);
    return Case{gguf_file(model, random() % 2 == 0 ? model.keys : mutate_keys(model, random)).bytes,
                {}};
  });
}

TEST_F(MutateModels, SafetensorsOfOddSizes) {
  run(600, [&](std::mt19937_64& random) {
    const SafetensorsModel model = resized_safetensors_model(random);
    return Case{model.seeds.front().bytes,
                random() % 2 == 0 ? model.config : mutate_config(model.config, random)};
  });
}

TEST_F(MutateModels, EveryFamily) {
  const std::vector<SafetensorsModel> models = recorded_models();
  run(2'000, [&](std::mt19937_64& random) {
    const SafetensorsModel& model = models[random() % models.size()];
    const uint64_t kind = random() % 4;
    const Bytes bytes = kind <= 1 ? mutate(model.seeds, random) : model.seeds.front().bytes;
    return Case{bytes, kind == 0 ? model.config : mutate_config(model.config, random)};
  });
}

TEST_F(MutateModels, GgufOfEveryFamily) {
  const std::vector<GgufModel> models = recorded_gguf_models();
  run(1'000, [&](std::mt19937_64& random) {
    const GgufModel& model = models[random() % models.size()];
    const uint64_t kind = random() % 4;
    const Seed file = gguf_file(model, kind == 0 ? model.keys : mutate_keys(model, random));
    return Case{kind <= 1 ? mutate({file}, random) : file.bytes, {}};
  });
}

TEST_F(MutateModels, SafetensorsAndConfig) {
  const std::vector<SafetensorsModel> models = safetensors_models();
  run(3'000, [&](std::mt19937_64& random) {
    const SafetensorsModel& model = models[random() % models.size()];
    const uint64_t kind = random() % 4;
    const Bytes bytes = kind <= 1 ? mutate(model.seeds, random) : model.seeds.front().bytes;
    return Case{bytes, kind == 0 ? model.config : mutate_config(model.config, random)};
  });
}

}  // namespace
}  // namespace headrace::fuzz
