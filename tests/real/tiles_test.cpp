// Real models on unit amx with keys and values as it has them by default: on AMX, or with its tile
// instructions trapped (differential/tile_traps.h) where the processor has the vectors alone. What
// it is chosen for, `exact`, lies within 0.005 of the recorded float32 log-probs on average.
//
// The beginning of one prompt of SmolLM2; with HEADRACE_FULL=1 every prompt of each, with traps a
// quarter of an hour or more.

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>

#include "checkpoint/checkpoint.h"
#include "golden/golden_data.h"
#include "model/model.h"
#include "real/real_models.h"
#include "server/api/bundle.h"
#include "verify/verify.h"

namespace headrace {
namespace {

class RealModelsInTiles : public ::testing::TestWithParam<RealModel> {};

std::string record_of(const std::string& path) {
  if (!wants_everything()) return beginnings_of(path, 1, 3);
  std::ifstream file(path);
  return {std::istreambuf_iterator(file), {}};
}

double mean_difference(const std::string& details) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(details, found, std::regex("mean ([0-9.]+)"))) << details;
  return found.empty() ? 1 : std::stod(found[1]);
}

TEST_P(RealModelsInTiles, ExactIsWithinWhatItMayDiffer) {
  const auto file = find_model_file(GetParam().stem);
  if (!file) GTEST_SKIP() << "set HEADRACE_TEST_MODELS to test " << GetParam().stem;
  const bool is_first = GetParam().stem == kModels[0].stem;
  if (!is_first && !wants_everything()) GTEST_SKIP() << "with HEADRACE_FULL=1 alone";
  const auto backend = golden::backend_for("amx", 2);
  if (backend == nullptr) GTEST_SKIP() << "this processor lacks the vectors of unit amx";
  ASSERT_EQ(backend->default_kv_type(), KvType::kInt16);
  const auto checkpoint = Checkpoint::open(*file).value();
  ModelOptions options;
  options.kv_type = backend->default_kv_type();
  const auto model = Model::load(*checkpoint, *backend, options).value();
  const TextBundle text = TextBundle::load(*checkpoint, ContentTokens::kPlain).value();
  const std::string path = golden_file(std::string("real/") + GetParam().expect);
  const auto rows = model_rows(*model, *backend, *text.tokenizer, {{path, record_of(path)}, {}, 0});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_GE(rows->size(), 1u);
  for (const VerifyRow& row : *rows) {
    EXPECT_TRUE(row.passed) << row.item << ": " << row.details;
    EXPECT_LE(mean_difference(row.details), 0.005) << row.item;
    std::printf("%s: %s\n", row.item.c_str(), row.details.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealModelsInTiles, ::testing::ValuesIn(kModels),
                         [](const auto& row) { return name_of(row.param); });

}  // namespace
}  // namespace headrace
