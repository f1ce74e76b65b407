// Every recorded folder whose family the table has, on every instruction set: logits, hidden
// states, greedy ids, and the same bits from both generations of config.json.
#include <gtest/gtest.h>

#include <set>

#include "golden/golden_data.h"
#include "model/config/families.h"
#include "verify/golden.h"

namespace headrace::golden {
namespace {

namespace fs = std::filesystem;

// Chunks of 64: the longest prompts take two steps.
// KV in float32: what these checkpoints are compared with was computed so.
const ModelOptions kOptions = {
    .max_batch_tokens = 64, .max_logit_rows = 64, .kv_type = KvType::kF32};

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = backend_for(GetParam());
    if (backend_ == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
    EXPECT_EQ(backend_->isa(), GetParam());
  }

  // How many of these folders passed; each must.
  int run(const std::vector<std::string>& folders) {
    int num_passed = 0;
    for (const std::string& folder : folders) {
      SCOPED_TRACE(folder);
      const auto report = verify_golden_folder(folder, *backend_, kOptions);
      if (!report.ok()) {
        ADD_FAILURE() << report.error().message;
        continue;
      }
      EXPECT_TRUE(report->passed) << report->error;
      EXPECT_LE(report->max_difference, report->tolerance);
      EXPECT_GT(report->positions, 0);
      num_passed += report->passed ? 1 : 0;
    }
    return num_passed;
  }

  // What no family reads is refused, and called by its name.
  void expect_refused(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      SCOPED_TRACE(folder);
      const auto report = verify_golden_folder(folder, *backend_, kOptions);
      ASSERT_FALSE(report.ok());
      EXPECT_EQ(report.error().code, ErrorCode::kUnsupported) << report.error().message;
      EXPECT_FALSE(report.error().message.empty());
    }
  }

  // The repository's folders, and those of another collection where the environment names one.
  static std::vector<fs::path> roots() {
    std::vector<fs::path> roots = {test::archive_root()};
    if (test::golden_root() != roots[0]) roots.push_back(test::golden_root());
    return roots;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_P(GoldenTest, EveryAdapterPasses) {
  for (const fs::path& root : roots()) {
    const auto folders = entries(root, "lora");
    EXPECT_EQ(run(folders), std::ssize(folders)) << root;
    EXPECT_GE(folders.size(), 9u) << root;
  }
}

// Names of modules and orders of rows are those of the published network, whatever the file.
TEST_P(GoldenTest, AdaptersFitTheirBaseInAnotherFormat) {
  int num_checked = 0;
  for (const std::string& folder : entries(test::archive_root(), "lora")) {
    const Golden golden = read_golden(folder).value();
    const fs::path file = test::archive_root() / "gguf" / (file_name(golden.base) + ".gguf");
    if (!fs::exists(file)) continue;
    SCOPED_TRACE(folder);
    const auto checkpoint = Checkpoint::open(file.string()).value();
    const auto report = verify_golden_adapter(golden, *checkpoint, *backend_, kOptions);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(report->passed) << report->error;
    ++num_checked;
  }
  EXPECT_GE(num_checked, 9);
}

TEST_P(GoldenTest, EveryFamilyPasses) {
  for (const fs::path& root : roots()) {
    const auto folders = folders_matched(root, "tiny");
    EXPECT_EQ(run(folders), std::ssize(folders));
  }
}

TEST_P(GoldenTest, AnIndexAgreesWhereNoScoresAreEqual) {
  const std::string folder = (test::archive_root() / "tiny" / kTiedAtTheCut).string();
  Golden golden = read_golden(folder).value();
  ASSERT_EQ(golden.prompts.size(), 3u);
  golden.prompts.pop_back();
  const auto checkpoint = open_folder(folder).value();
  const auto report = verify_golden(golden, *checkpoint, *backend_, kOptions).value();
  EXPECT_TRUE(report.passed) << report.error;
}

TEST_P(GoldenTest, EveryQuantisedLayoutPasses) {
  for (const fs::path& root : roots()) {
    const auto folders = folders_run(root, "quant");
    EXPECT_EQ(run(folders), std::ssize(folders));
    EXPECT_GE(folders.size(), 13u);
  }
}

TEST_P(GoldenTest, CheckpointsOfOtherShapesPass) {
  const auto folders = folders_run(test::archive_root(), "unseen");
  EXPECT_EQ(run(folders), std::ssize(folders));
}

TEST_P(GoldenTest, WhatNoFamilyReadsIsRefused) {
  for (const std::string kind : {"tiny", "quant", "unseen"}) {
    expect_refused(folders_refused(test::archive_root(), kind));
  }
}

TEST(GoldenArchive, HasAFolderOfEveryFamily) {
  std::set<const Family*> found;
  const auto folders = folders_run(test::archive_root(), "tiny");
  for (const std::string& folder : folders) found.insert(family_of(folder));
  for (const Family& family : families()) EXPECT_TRUE(found.contains(&family)) << family.name;
  EXPECT_GE(folders.size(), families().size());
}

INSTANTIATE_TEST_SUITE_P(Isa, GoldenTest, testing::ValuesIn(instruction_sets()), name_of_isa);

}  // namespace
}  // namespace headrace::golden
