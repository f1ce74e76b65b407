// The same sequence gives the same bits whatever runs beside it, however it is cut into steps,
// wherever its blocks lie and however many threads work.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>

#include "checkpoint/adapter_files.h"
#include "golden/golden_data.h"
#include "model/whole_tables.h"
#include "verify/golden.h"
#include "verify/sequence_runner.h"

namespace headrace::golden {
namespace {

using Sequences = std::vector<std::vector<int32_t>>;
using Adapters = std::vector<const PackedAdapter*>;    // per sequence; none: the model alone
using Logits = std::vector<std::vector<float>>;        // per sequence, all positions
using Step = std::vector<std::pair<size_t, int32_t>>;  // sequence, tokens of it
constexpr int kMaxRows = 160;

// Runs steps on a model with a KV store of its own, whose blocks are dealt out in turn.
class Player {
 public:
  Player(Model& model, Backend& backend, const Sequences& sequences, const Adapters& adapters = {})
      : model_(model),
        backend_(backend),
        sequences_(sequences),
        adapters_(adapters),
        computed_(sequences.size()),
        logits_(sequences.size()) {
    const auto num_logits = static_cast<size_t>(kMaxRows * model.config().vocab_size);
    step_logits_ = backend.allocate(num_logits * sizeof(float), MemoryUse::kResults).value();
    std::vector<std::vector<int32_t>> dealt(sequences.size());
    int32_t next_block = 0;
    for (bool deals = true; deals;) {
      deals = false;
      for (size_t i = 0; i < sequences.size(); ++i) {
        if (dealt[i].size() * kBlockTokens >= sequences[i].size()) continue;
        dealt[i].push_back(next_block++);
        deals = true;
      }
    }
    const CacheLayout layout = plan_cache(model.cache_groups(), backend);
    for (const auto& ids : dealt) tables_.emplace_back(ids, layout.num_columns, next_block);
    auto store = KvStore::create(backend, layout, next_block * layout.num_columns);
    EXPECT_TRUE(store.ok());
    store_ = std::move(store).value();
  }

  void play(const Step& step) {
    std::vector<int32_t> ids, rows;
    std::vector<Span> spans;
    for (const auto& [idx, count] : step) {
      const auto& sequence = sequences_[idx];
      spans.push_back({static_cast<int32_t>(ids.size()), count,
                       static_cast<int64_t>(computed_[idx]), tables_[idx].data(),
                       model_.rope_epoch(static_cast<int64_t>(sequence.size()))});
      if (!adapters_.empty()) spans.back().adapter = adapters_[idx];
      for (int32_t i = 0; i < count; ++i) {
        rows.push_back(static_cast<int32_t>(ids.size()));
        ids.push_back(sequence[computed_[idx]++]);
      }
    }
    model_.forward(Batch{ids, spans, rows}, store_, step_logits_.as<float>());
    const size_t num_logits = rows.size() * static_cast<size_t>(model_.config().vocab_size);
    const float* next = backend_.read_view(step_logits_.as<float>(), num_logits).data();
    for (const auto& [idx, count] : step) {
      const int64_t values = count * model_.config().vocab_size;
      logits_[idx].insert(logits_[idx].end(), next, next + values);
      next += values;
    }
  }

  size_t left(size_t idx) const { return sequences_[idx].size() - computed_[idx]; }
  const Logits& logits() const { return logits_; }

 private:
  Model& model_;
  Backend& backend_;
  const Sequences& sequences_;
  const Adapters adapters_;
  std::vector<size_t> computed_;
  std::vector<WholeTables> tables_;
  Logits logits_;
  KvStore store_;
  DeviceMemory step_logits_;
};

Logits all_at_once(Model& model, Backend& backend, const Sequences& sequences,
                   const Adapters& adapters = {}) {
  Player player(model, backend, sequences, adapters);
  Step step;
  for (size_t i = 0; i < sequences.size(); ++i) {
    step.push_back({i, static_cast<int32_t>(sequences[i].size())});
  }
  player.play(step);
  return player.logits();
}

Logits one_by_one(Model& model, Backend& backend, const Sequences& sequences,
                  const Adapters& adapters = {}) {
  Logits logits;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Adapters own = adapters.empty() ? Adapters{} : Adapters{adapters[i]};
    logits.push_back(all_at_once(model, backend, {sequences[i]}, own)[0]);
  }
  return logits;
}

// Chunks of each sequence beside chunks of the others, of unequal sizes.
Logits chunked(Model& model, Backend& backend, const Sequences& sequences, size_t chunk,
               const Adapters& adapters = {}) {
  Player player(model, backend, sequences, adapters);
  for (bool working = true; working;) {
    Step step;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const size_t count = std::min(player.left(i), chunk + i % 2);
      if (count > 0) step.push_back({i, static_cast<int32_t>(count)});
    }
    working = !step.empty();
    if (working) player.play(step);
  }
  return player.logits();
}

void expect_same_bits(const Logits& found, const Logits& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size()) << what;
    EXPECT_EQ(0, std::memcmp(found[i].data(), expected[i].data(), found[i].size() * sizeof(float)))
        << what << ", sequence " << i;
  }
}

std::unique_ptr<Model> load(const std::string& path, Backend& backend) {
  auto checkpoint = path.ends_with(".gguf") ? Checkpoint::open(path) : open_folder(path);
  EXPECT_TRUE(checkpoint.ok());
  if (!checkpoint.ok()) return nullptr;
  const ModelOptions options = {.max_batch_tokens = kMaxRows, .max_logit_rows = kMaxRows};
  auto model = Model::load(**checkpoint, backend, options);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? std::move(model).value() : nullptr;
}

// Four sequences of different length; the last one begins like the longest.
Sequences sequences_of(const std::string& folder) {
  const auto golden = read_golden(folder);
  EXPECT_TRUE(golden.ok());
  Sequences sequences;
  for (const GoldenPrompt& prompt : golden->prompts) sequences.push_back(prompt.ids);
  const std::vector<int32_t>& longest = sequences.back();
  sequences.push_back({longest.begin(), longest.begin() + std::min<long>(33, std::ssize(longest))});
  return sequences;
}

class EqualityTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = backend_for(GetParam());
    if (backend_ == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  }

  void check(const std::string& folder) {
    SCOPED_TRACE(folder);
    const Sequences sequences = sequences_of(folder);
    const auto model = load(folder, *backend_);
    ASSERT_NE(model, nullptr);
    const Logits alone = one_by_one(*model, *backend_, sequences);
    expect_same_bits(all_at_once(*model, *backend_, sequences), alone, "batched");
    for (size_t chunk : {1, 7, 16, 33}) {
      expect_same_bits(chunked(*model, *backend_, sequences, chunk), alone,
                       "chunks of " + std::to_string(chunk));
    }
    for (int num_threads : {1, 2, 3}) {
      const auto other = backend_for(GetParam(), num_threads);
      const auto restarted = load(folder, *other);
      ASSERT_NE(restarted, nullptr);
      expect_same_bits(one_by_one(*restarted, *other, sequences), alone,
                       "restarted on threads: " + std::to_string(num_threads));
    }
  }

  // Folders of lora/ by that of their checkpoint.
  static std::map<std::string, std::vector<std::string>> adapters_by_base() {
    std::map<std::string, std::vector<std::string>> folders;
    for (const std::string& folder : entries(test::archive_root(), "lora")) {
      folders[read_golden(folder).value().base].push_back(folder);
    }
    EXPECT_GE(folders.size(), 4u);
    return folders;
  }

  static std::vector<std::unique_ptr<const Adapter>> load_adapters(
      const Model& model, const std::vector<std::string>& folders) {
    std::vector<std::unique_ptr<const Adapter>> adapters;
    for (const std::string& folder : folders) {
      const AdapterFolder files = read_adapter_folder(folder).value();
      auto adapter = model.load_adapter({folder, files.config, files.bytes()});
      EXPECT_TRUE(adapter.ok()) << adapter.error().message;
      adapters.push_back(std::move(adapter).value());
    }
    return adapters;
  }

  void check_adapters(const std::string& base, const std::vector<std::string>& folders) {
    const auto model = load(base, *backend_);
    ASSERT_NE(model, nullptr);
    const auto adapters = load_adapters(*model, folders);
    Adapters packed = {nullptr};
    for (const auto& adapter : adapters) packed.push_back(adapter->packed.get());
    packed.push_back(nullptr);
    // As many tokens as fit in one step.
    const std::vector<int32_t> longest = sequences_of(base).back();
    const auto count = static_cast<long>(std::min(longest.size(), kMaxRows / packed.size()));
    const Sequences sequences(packed.size(), {longest.begin(), longest.begin() + count});

    const Logits alone = one_by_one(*model, *backend_, sequences, packed);
    const Logits plain = one_by_one(*model, *backend_, {sequences[0]});
    EXPECT_EQ(alone.front(), plain.front());
    for (size_t i = 1; i + 1 < alone.size(); ++i) EXPECT_NE(alone[i], plain.front());
    expect_same_bits(all_at_once(*model, *backend_, sequences, packed), alone, "batched");
    for (size_t chunk : {1, 7, 16}) {
      expect_same_bits(chunked(*model, *backend_, sequences, chunk, packed), alone,
                       "chunks of " + std::to_string(chunk));
    }
    const auto other = backend_for(GetParam(), 3);
    const auto restarted = load(base, *other);
    const auto again = load_adapters(*restarted, folders);
    for (size_t i = 0; i < again.size(); ++i) packed[i + 1] = again[i]->packed.get();
    expect_same_bits(one_by_one(*restarted, *other, sequences, packed), alone, "on three threads");
  }

  std::unique_ptr<Backend> backend_;
};

TEST_P(EqualityTest, AloneBatchedChunkedRestartedGiveTheSameBits) {
  int num_checked = 0;
  for (const std::string& folder : folders_run(test::archive_root(), "tiny")) {
    check(folder);
    ++num_checked;
  }
  EXPECT_GE(num_checked, 25);
}

TEST_P(EqualityTest, QuantisedWeightsToo) {
  int num_checked = 0;
  for (const std::string& folder : folders_run(test::archive_root(), "quant")) {
    check(folder);
    ++num_checked;
  }
  EXPECT_GE(num_checked, 13);
}

// Of each adapter of a base one sequence, and two of the base alone: the same ids, so that what
// differs is the adapters' doing.
TEST_P(EqualityTest, AdaptersBesideEachOtherGiveTheBitsThatEachGivesAlone) {
  for (const auto& [base, folders] : adapters_by_base()) {
    SCOPED_TRACE(base);
    check_adapters(base, folders);
  }
}

// Where the rope table changes with the length, a growing sequence is computed again and ends as if
// it had been given whole.
TEST_P(EqualityTest, GrowingPastARopeSwitchEqualsStartingThere) {
  for (const char* name : {"phi3_longrope", "llama_dynamic"}) {
    const auto model = load((test::archive_root() / "tiny" / name).string(), *backend_);
    ASSERT_NE(model, nullptr);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 56; ++i) ids.push_back((i * 37 + 5) % 256);
    auto growing = SequenceRunner::create(*model, *backend_, std::ssize(ids));
    int num_switches = 0;
    for (int64_t length = 1; length <= std::ssize(ids); ++length) {
      std::vector<float> last, whole;
      const auto keep = [](std::vector<float>* kept) {
        return
            [kept](int64_t, std::span<const float> row) { kept->assign(row.begin(), row.end()); };
      };
      growing->append({&ids[static_cast<size_t>(length) - 1], 1}, length - 1, keep(&last));
      if (model->rope_epoch(length) != model->rope_epoch(length - 1)) ++num_switches;
      if (length < 46) continue;
      auto fresh = SequenceRunner::create(*model, *backend_, length);
      fresh->append(std::span(ids).first(static_cast<size_t>(length)), length - 1, keep(&whole));
      EXPECT_EQ(last, whole) << name << " at length " << length;
    }
    EXPECT_GT(num_switches, 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, EqualityTest, testing::ValuesIn(instruction_sets()), name_of_isa);

}  // namespace
}  // namespace headrace::golden
