// Random models: every format has finite weights of a sensible size, and the files load and run.

#include "bench/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "base/testing/temp_folder.h"
#include "checkpoint/checkpoint.h"
#include "model/config/families.h"
#include "model/model.h"
#include "server/api/bundle.h"
#include "verify/sequence_runner.h"

namespace headrace {
namespace synth_test {

namespace fs = std::filesystem;

constexpr SynthShape kTiny = {"tiny", "llama", 256, 3, 8, 2, 32, 512, 320, true, 10000, 128};

TEST(Synth, BlocksOfEveryFormatAreFiniteAndOfTheWantedSize) {
  constexpr int64_t kInputs = 4096;
  int num_checked = 0;
  for (const SynthFormat& format : synth_formats()) {
    for (const DType dtype : {format.main, format.better}) {
      const DTypeRow& row = dtype_row(dtype);
      const int64_t num_blocks = 16 * kInputs / row.block_elements;
      std::vector<std::byte> blocks(static_cast<size_t>(num_blocks) * row.block_bytes);
      uint64_t state = 77;
      fill_random_blocks(dtype, kInputs, &state, blocks);
      std::vector<float> values(static_cast<size_t>(16 * kInputs));
      row.dequantise(blocks.data(), num_blocks, values.data());
      double sum = 0, squares = 0;
      for (const float value : values) {
        ASSERT_TRUE(std::isfinite(value)) << format.name;
        sum += value;
        squares += double{value} * value;
      }
      const auto count = static_cast<double>(values.size());
      const double deviation = std::sqrt(squares / count) * std::sqrt(kInputs);
      EXPECT_GT(deviation, 0.6) << row.name;
      EXPECT_LT(deviation, 1.6) << row.name;
      EXPECT_LT(std::abs(sum / count) * std::sqrt(kInputs), 0.2) << row.name;
      ++num_checked;
    }
  }
  EXPECT_GT(num_checked, 30);
}

TEST(Synth, EveryShapeIsValid) {
  for (const SynthShape& shape : synth_shapes()) EXPECT_TRUE(check_shape(shape).ok()) << shape.name;
  EXPECT_GE(synth_shapes().size(), 7u);
}

TEST(Synth, MixedFormatGivesTheHeadAndSomeLayersTheBetterType) {
  SynthFormat mixed{};
  for (const SynthFormat& format : synth_formats()) {
    if (format.name == "q4_k_m") mixed = format;
  }
  const std::vector<SynthTensor> tensors = synth_tensors(kTiny, mixed);
  int num_better = 0;
  for (const SynthTensor& tensor : tensors) {
    EXPECT_EQ(tensor.offset % 32, 0u) << tensor.name;
    num_better += tensor.dtype == DType::kQ6K;
  }
  EXPECT_EQ(tensors.front().name, "token_embd.weight");
  EXPECT_EQ(tensors.front().dtype, DType::kQ6K);
  EXPECT_GT(num_better, 1);
}

TEST(Synth, FormatsGiveWayWhereTheirBlocksDoNotFit) {
  SynthShape narrow = kTiny;
  narrow.hidden_size = 96;  // whole blocks of 32, no super-blocks
  for (const SynthFormat& format : synth_formats()) {
    for (const SynthTensor& tensor : synth_tensors(narrow, format)) {
      EXPECT_EQ(tensor.sizes.front() % dtype_row(tensor.dtype).block_elements, 0)
          << format.name << " " << tensor.name;
    }
  }
}

// Greedy ids that a file's model writes after a few tokens; empty if it does not load.
std::vector<int32_t> run_model(const std::string& path) {
  const auto checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) ADD_FAILURE() << checkpoint.error().message;
  const auto backend = create_cpu_backend({"auto", 1});
  if (!checkpoint.ok() || !backend.ok()) return {};
  const auto text = TextBundle::load(**checkpoint);
  if (!text.ok()) ADD_FAILURE() << text.error().message;
  const auto model = Model::load(**checkpoint, **backend, {});
  if (!model.ok()) ADD_FAILURE() << model.error().message;
  if (!model.ok()) return {};
  auto runner = SequenceRunner::create(**model, **backend, 64);
  if (!runner.ok()) return {};
  bool finite = true;
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
  runner->append(prompt, 0, [&](int64_t, std::span<const float> logits) {
    for (const float logit : logits) finite &= std::isfinite(logit);
  });
  EXPECT_TRUE(finite) << path;
  runner->restart();
  return runner->generate_greedy(prompt, 4);
}

TEST(Synth, FilesOfEveryFormatLoadAndRun) {
  const testing::TempFolder folder;
  const std::string path = folder.file("synth_model.gguf");
  int num_run = 0;
  for (const SynthFormat& format : synth_formats()) {
    const Status written = write_synth(kTiny, format, 5, path);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(run_model(path).size(), 4u) << format.name;
    ++num_run;
  }
  EXPECT_GE(num_run, 17);
}

// The shape with its kinds of layers, but narrow and of twelve layers.
SynthShape narrowed(SynthShape shape) {
  const auto at_most = [](int64_t* size, int64_t largest) { *size = std::min(*size, largest); };
  at_most(&shape.hidden_size, 64);
  at_most(&shape.num_layers, 12);
  at_most(&shape.num_heads, 4);
  at_most(&shape.num_kv_heads, 2);
  at_most(&shape.head_dim, 32);
  at_most(&shape.intermediate_size, 96);
  at_most(&shape.vocab_size, 320);
  at_most(&shape.window, 16);
  at_most(&shape.num_experts, 8);
  at_most(&shape.expert_width, 32);
  for (int64_t SynthShape::* field :
       {&SynthShape::kv_lora_rank, &SynthShape::nope_dim, &SynthShape::rope_dim,
        &SynthShape::value_dim, &SynthShape::linear_head_dim, &SynthShape::per_layer_width}) {
    at_most(&(shape.*field), 32);
  }
  at_most(&shape.full_head_dim, 64);
  at_most(&shape.linear_key_heads, 2);
  at_most(&shape.linear_value_heads, 4);
  return shape;
}

bool is_known(std::string_view architecture) {
  return find_family_by_gguf(architecture, false, false, nullptr) != nullptr;
}

TEST(Synth, EveryKindOfNetworkLoadsAndRuns) {
  const testing::TempFolder folder;
  const std::string path = folder.file("synth_kind.gguf");
  int num_run = 0;
  for (const SynthShape& shape : synth_shapes()) {
    SCOPED_TRACE(shape.name);
    for (const SynthFormat& format : synth_formats()) {
      if (format.name != "q8_0" && format.name != "mxfp4") continue;
      const Status written = write_synth(narrowed(shape), format, 5, path);
      ASSERT_TRUE(written.ok()) << written.error().message;
      if (!is_known(shape.architecture)) continue;
      EXPECT_EQ(run_model(path).size(), 4u) << format.name;
      ++num_run;
    }
  }
  EXPECT_GE(num_run, 14);
}

// Also with so few that a pattern of layers is cut short.
TEST(Synth, EveryNumberOfLayersLoadsAndRuns) {
  const testing::TempFolder folder;
  const std::string path = folder.file("synth_layers.gguf");
  int num_run = 0;
  for (const SynthShape& published : synth_shapes()) {
    SynthShape shape = narrowed(published);
    for (shape.num_layers = 1; shape.num_layers <= 11; ++shape.num_layers) {
      SCOPED_TRACE(::testing::Message() << shape.name << ", " << shape.num_layers << " layers");
      const Status written = write_synth(shape, synth_formats().front(), 5, path);
      ASSERT_TRUE(written.ok()) << written.error().message;
      EXPECT_EQ(run_model(path).size(), 4u);
      ++num_run;
    }
  }
  EXPECT_GE(num_run, 150);
}

TEST(Synth, EqualSeedsGiveEqualModelsAndOtherSeedsOthers) {
  const testing::TempFolder folder;
  const std::string path = folder.file("synth_seed.gguf");
  const SynthFormat& format = synth_formats().front();
  SynthShape shape = kTiny;
  shape.architecture = "qwen2";  // with biases
  shape.tied = false;
  std::vector<std::vector<int32_t>> runs;
  for (const uint64_t seed : {3, 3, 4}) {
    ASSERT_TRUE(write_synth(shape, format, seed, path).ok());
    runs.push_back(run_model(path));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST(Synth, WrongSizesAreRefusedByName) {
  SynthShape wrong = kTiny;
  wrong.num_kv_heads = 3;
  const testing::TempFolder folder;
  const std::string path = folder.file("never_written.gguf");
  const Status status = write_synth(wrong, synth_formats().front(), 0, path);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "--heads is 8, but it must be a multiple of the 3 KV heads");
  EXPECT_FALSE(fs::exists(path));
}

TEST(Synth, ALinkStaysAndLeadsToTheModel) {
  const testing::TempFolder folder;
  const std::string link = folder.file("link.gguf");
  fs::create_symlink("model.gguf", link);
  ASSERT_TRUE(write_synth(kTiny, synth_formats().front(), 5, link).ok());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_regular_file(folder.file("model.gguf")));
  EXPECT_EQ(run_model(link).size(), 4u);
}

TEST(Synth, NothingIsLeftWhereNothingCanBeWritten) {
  const testing::TempFolder own;
  const std::string folder = own.path();
  fs::create_directories(folder + "/taken.gguf");  // a folder in the way of the rename
  EXPECT_FALSE(write_synth(kTiny, synth_formats().front(), 0, folder + "/taken.gguf").ok());
  EXPECT_FALSE(write_synth(kTiny, synth_formats().front(), 0, folder + "/none/x.gguf").ok());
  int num_left = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_EQ(entry.path().filename(), "taken.gguf");
    ++num_left;
  }
  EXPECT_EQ(num_left, 1);
}

}  // namespace synth_test
}  // namespace headrace
