// GGUF files of every family against the results of the originals they were made from.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "golden/golden_data.h"
#include "model/config/families.h"
#include "verify/golden.h"
#include "verify/sequence_runner.h"

namespace headrace::golden {
namespace {

// KV in float32: what these checkpoints are compared with was computed so.
const ModelOptions kOptions = {
    .max_batch_tokens = 64, .max_logit_rows = 64, .kv_type = KvType::kF32};

// Files with blocks of 4 bits were made of blocks.
std::string original_of(const std::string& file) {
  const std::filesystem::path name = std::filesystem::path(file).stem();
  const std::filesystem::path plain = test::archive_root() / "tiny" / name;
  return (std::filesystem::exists(plain) ? plain : test::archive_root() / "quant" / name).string();
}

// Each family that has a GGUF form of its own is among the originals.
void expect_every_family(const std::vector<std::string>& files) {
  std::set<const Family*> found;
  for (const std::string& file : files) found.insert(family_of(original_of(file)));
  for (const Family& family : families()) {
    if (family.gguf.architecture.empty()) continue;
    EXPECT_TRUE(found.contains(&family)) << family.name;
  }
}

class GgufTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = backend_for(GetParam());
    if (backend_ == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  }

  // Holds each file to tiny/NAME of the archive; returns how many passed.
  int run(const std::vector<std::string>& files) {
    int num_passed = 0;
    for (const std::string& file : files) {
      SCOPED_TRACE(file);
      auto golden = read_golden(original_of(file));
      const auto checkpoint = Checkpoint::open(file);
      if (!golden.ok() || !checkpoint.ok()) {
        ADD_FAILURE() << (golden.ok() ? checkpoint.error() : golden.error()).message;
        continue;
      }
      if (file_name(original_of(file)) == kTiedAtTheCut) golden->prompts.pop_back();
      const auto report = verify_golden(*golden, **checkpoint, *backend_, kOptions);
      if (!report.ok()) {
        ADD_FAILURE() << report.error().message;
        continue;
      }
      EXPECT_TRUE(report->passed) << report->error;
      num_passed += report->passed ? 1 : 0;
    }
    return num_passed;
  }

  std::unique_ptr<Backend> backend_;
};

// Runs tools/make_tiny_ggufs.py on the archive's checkpoints; nothing without a Python that has the
// gguf package.
std::optional<std::vector<std::string>> made_by_python(const std::string& type) {
  const char* python = std::getenv("HEADRACE_PYTHON");
  if (python == nullptr || !std::filesystem::exists(python)) return std::nullopt;
  const std::string quoted = fmt::format("'{}'", python);
  if (std::system((quoted + " -c 'import gguf, numpy' 2>/dev/null").c_str()) != 0) {
    return std::nullopt;
  }
  const std::string out = temporary_folder("made-" + type);
  const std::string command =
      fmt::format("{} '{}/tools/make_tiny_ggufs.py' '{}/tiny' '{}' --type {}", quoted,
                  HEADRACE_SOURCE_DIR, test::archive_root().string(), out, type);
  EXPECT_EQ(0, std::system(command.c_str())) << command;
  std::vector<std::string> files = entries(out, "");
  std::erase_if(files, [](const std::string& f) { return family_of(original_of(f)) == nullptr; });
  return files;
}

TEST_P(GgufTest, FilesOfTheArchiveGiveTheOriginalsResults) {
  const auto files = entries(test::archive_root(), "gguf");
  EXPECT_EQ(run(files), static_cast<int>(files.size()));
  EXPECT_GE(files.size(), 24u);
}

TEST_P(GgufTest, FilesWrittenNowInFloat32GiveTheOriginalsResults) {
  const auto files = made_by_python("f32");
  if (!files) GTEST_SKIP() << "HEADRACE_PYTHON names no Python with the gguf package";
  EXPECT_EQ(run(*files), static_cast<int>(files->size()));
  expect_every_family(*files);
}

// Logits at every position of a fixed prompt.
std::vector<float> logits_of(const std::string& file, Backend& backend) {
  std::vector<float> logits;
  const auto checkpoint = Checkpoint::open(file);
  EXPECT_TRUE(checkpoint.ok());
  auto model = Model::load(**checkpoint, backend, kOptions);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  if (!model.ok()) return logits;
  auto runner = SequenceRunner::create(**model, backend, 40);
  std::vector<int32_t> ids;
  const auto vocab_size = static_cast<int32_t>((*model)->config().vocab_size);
  for (int32_t i = 0; i < 40; ++i) ids.push_back((i * 37 + 5) % vocab_size);
  runner->append(ids, 0, [&](int64_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  });
  return logits;
}

struct Distance {
  float largest = 0;   // value expected
  float of_a_row = 0;  // the largest difference of the row in the middle
  float of_all_rows = 0;
};

Distance distance(const std::vector<float>& found, const std::vector<float>& expected) {
  constexpr size_t kRows = 40;
  Distance distance;
  std::vector<float> rows(kRows);
  for (size_t i = 0; i < found.size(); ++i) {
    float& row = rows[i * kRows / found.size()];
    row = std::max(row, std::abs(found[i] - expected[i]));
    distance.largest = std::max(distance.largest, std::abs(expected[i]));
  }
  std::ranges::sort(rows);
  distance.of_a_row = rows[kRows / 2];
  distance.of_all_rows = rows.back();
  return distance;
}

TEST_P(GgufTest, BlockFormatsGiveWhatTheirValuesGiveInFloat32) {
  const auto packed = made_by_python("q8_0");
  const auto widened = made_by_python("q8_0_widened");
  if (!packed || !widened) GTEST_SKIP() << "HEADRACE_PYTHON names no Python with the gguf package";
  ASSERT_EQ(packed->size(), widened->size());
  expect_every_family(*packed);
  for (size_t i = 0; i < packed->size(); ++i) {
    SCOPED_TRACE((*packed)[i]);
    const std::vector<float> found = logits_of((*packed)[i], *backend_);
    const std::vector<float> expected = logits_of((*widened)[i], *backend_);
    ASSERT_EQ(found.size(), expected.size());
    const Distance found_distance = distance(found, expected);
    // Activations that meet codes have 16 bits, those that meet float32 have 24: each layer adds
    // about 2^-15 of its values. Of two experts that are nearly as good the other may be chosen.
    const Family& family = *family_of(original_of((*packed)[i]));
    const bool routed = family.experts != nullptr;
    // These random networks enlarge what is rounded: their float32 originals are off float64 by as
    // much more than others'.
    const bool amplifies = family.delta != nullptr || family.name.starts_with("gemma4");
    // The unit amx rounds to 2^-16 of the largest of 512 activations, the others of 32.
    const float enlarged = GetParam() == "amx" ? 6e-2f : 3e-2f;
    EXPECT_LE(routed ? found_distance.of_a_row : found_distance.of_all_rows,
              (amplifies ? enlarged : 1e-3f) * found_distance.largest);
    EXPECT_GT(found_distance.largest, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, GgufTest, testing::ValuesIn(instruction_sets()), name_of_isa);

}  // namespace
}  // namespace headrace::golden
