// Every recorded folder on every instruction set: logits, hidden states, greedy ids, and the same
// bits from both generations of config.json.
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

  // Folders passed; the others must be refused as unsupported.
  std::set<std::string> run(const std::vector<std::string>& folders) {
    std::set<std::string> passed;
    for (const std::string& folder : folders) {
      SCOPED_TRACE(folder);
      const auto report = verify_golden_folder(folder, *backend_, kOptions);
      if (!report.ok()) {
        EXPECT_EQ(report.error().code, ErrorCode::kUnsupported) << report.error().message;
        continue;
      }
      EXPECT_TRUE(report->passed) << report->error;
      EXPECT_LE(report->max_difference, report->tolerance);
      EXPECT_GT(report->positions, 0);
      if (report->passed) passed.insert(file_name(folder));
    }
    return passed;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_P(GoldenTest, EveryFamilyOfTheArchivePasses) {
  const auto folders = entries(test::dense_root(), "tiny");
  const std::set<std::string> passed = run(folders);
  EXPECT_EQ(passed.size(), folders.size());
  for (const Family& family : families()) {
    EXPECT_TRUE(passed.contains(std::string(family.name))) << family.name;
  }
}

TEST_P(GoldenTest, EveryQuantisedLayoutOfTheArchivePasses) {
  const auto folders = entries(test::dense_root(), "quant");
  EXPECT_EQ(run(folders).size(), folders.size());
  EXPECT_GE(folders.size(), 13u);
}

// Families that this version does not run; and all again where HEADRACE_GOLDEN names another
// collection.
TEST_P(GoldenTest, TheLargerCollectionPassesOrIsRefusedByName) {
  const bool is_other = test::golden_root().filename() != "all";
  int num_others = 0;
  for (const std::string kind : {"tiny", "quant", "lora"}) {
    std::vector<std::string> folders = entries(test::golden_root(), kind);
    EXPECT_GE(folders.size(), 9u) << kind;
    std::erase_if(folders, [&](const std::string& folder) {
      return !is_other && fs::exists(test::dense_root() / kind / file_name(folder));
    });
    run(folders);
    num_others += static_cast<int>(folders.size());
  }
  EXPECT_GE(num_others, 30);
}

INSTANTIATE_TEST_SUITE_P(Isa, GoldenTest, testing::ValuesIn(instruction_sets()), name_of_isa);

}  // namespace
}  // namespace headrace::golden
