// Every recorded folder on every instruction set: logits, hidden states, greedy ids, and the same
// bits from both generations of config.json.
#include <gtest/gtest.h>

#include <set>

#include "golden/golden_data.h"
#include "model/config/families.h"
#include "verify/golden.h"

namespace headrace::golden {
namespace {

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
  const auto folders = entries(packed_root(), "tiny");
  const std::set<std::string> passed = run(folders);
  EXPECT_EQ(passed.size(), folders.size());
  for (const Family& family : families()) {
    EXPECT_TRUE(passed.contains(std::string(family.name))) << family.name;
  }
}

TEST_P(GoldenTest, EveryQuantisedLayoutOfTheArchivePasses) {
  const auto folders = entries(packed_root(), "quant");
  EXPECT_EQ(run(folders).size(), folders.size());
  EXPECT_GE(folders.size(), 13u);
}

TEST_P(GoldenTest, TheLargerCollectionPassesOrIsRefusedByName) {
  const auto root = shared_root();
  if (!root) GTEST_SKIP() << "HEADRACE_GOLDEN is not set";
  EXPECT_GE(run(entries(*root, "tiny")).size(), 25u);
  EXPECT_GE(run(entries(*root, "quant")).size(), 13u);
  EXPECT_EQ(run(entries(*root, "lora")).size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Isa, GoldenTest, testing::ValuesIn(instruction_sets()), name_of_isa);

}  // namespace
}  // namespace headrace::golden
