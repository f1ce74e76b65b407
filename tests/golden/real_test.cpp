// Real models, where they are on disk: greedy ids of every recorded prompt.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "golden/golden_data.h"
#include "model/json_object.h"
#include "model/sequence_runner.h"
#include "model/verify.h"

namespace headrace::golden {
namespace {

std::vector<int32_t> ids_of(const boost::json::value& prompt, const char* key) {
  std::vector<int32_t> ids;
  for (const auto& id : prompt.at(key).as_array()) {
    ids.push_back(static_cast<int32_t>(id.as_int64()));
  }
  return ids;
}

// One recorded file: the model it names must continue every prompt as recorded.
int check_model(const std::string& recorded, const std::string& models, Backend& backend) {
  std::ifstream file(recorded);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto root = parse_json_object(text, recorded);
  EXPECT_TRUE(root.ok());
  const std::string path = models + "/" + std::string(root->at("model").as_string());
  if (!std::filesystem::exists(path)) return 0;
  SCOPED_TRACE(path);
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << (checkpoint.ok() ? "" : checkpoint.error().message);
  auto model = Model::load(**checkpoint, backend, {.max_batch_tokens = 128});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  if (!model.ok()) return 0;
  int num_prompts = 0;
  for (const auto& prompt : root->at("prompts").as_array()) {
    const std::vector<int32_t> ids = ids_of(prompt, "ids");
    const std::vector<int32_t> expected = ids_of(prompt, "greedy");
    auto runner = SequenceRunner::create(**model, backend, std::ssize(ids) + std::ssize(expected));
    EXPECT_EQ(runner->generate_greedy(ids, static_cast<int>(expected.size())), expected)
        << "prompt " << num_prompts;
    ++num_prompts;
  }
  return num_prompts;
}

class RealModelTest : public testing::TestWithParam<std::string> {};

TEST_P(RealModelTest, GreedyIdsAreTheReferences) {
  const char* models = std::getenv("HEADRACE_TEST_MODELS");
  if (models == nullptr) GTEST_SKIP() << "HEADRACE_TEST_MODELS is not set";
  const auto root = shared_root();
  if (!root) GTEST_SKIP() << "HEADRACE_GOLDEN is not set";
  const auto backend = backend_for(GetParam());
  if (backend == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  int num_prompts = 0;
  for (const std::string& recorded : entries(*root, "real")) {
    num_prompts += check_model(recorded, models, *backend);
  }
  EXPECT_GT(num_prompts, 0) << "none of the recorded models is in " << models;
}

// The reference units take minutes for these sizes.
INSTANTIATE_TEST_SUITE_P(Isa, RealModelTest, testing::Values("avx2", "avx512"), name_of_isa);

}  // namespace
}  // namespace headrace::golden
