// Which models a server serves, and how they are called.
#include "cli/served_models.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"
#include "cli/model_argument.h"

namespace headrace {
namespace served_models_test {

using testing::TempFolder;
using Given = std::map<std::string, std::string, std::less<>>;

Options serve_options(const Given& given, const std::vector<std::string>& words = {}) {
  return Options::create("serve", given, words).value();
}

std::vector<std::string> names_of(const std::vector<FoundModel>& models) {
  std::vector<std::string> names;
  for (const FoundModel& model : models) names.push_back(model.name);
  return names;
}

TEST(ServedName, IsTheLastPartWithoutItsEnding) {
  for (const auto& [spec, name] :
       {std::pair{"smollm2:135m", "smollm2:135m"}, std::pair{"/m/tiny.gguf", "tiny"},
        std::pair{"tiny.gguf", "tiny"},
        std::pair{"./Qwen2.5-0.5B-Instruct", "Qwen2.5-0.5B-Instruct"},
        std::pair{"models/Qwen3-0.6B/", "Qwen3-0.6B"}, std::pair{"a/model.safetensors", "model"},
        std::pair{"hf:org/Repo-1.5B", "Repo-1.5B"}, std::pair{"dir/.gguf", ".gguf"}}) {
    EXPECT_EQ(served_name(spec), name);
  }
}

TEST(TakeModels, EveryArgumentIsOne) {
  EXPECT_EQ(*take_models(serve_options({})), std::vector<std::string>{"smollm2:135m"});
  EXPECT_EQ(*take_models(serve_options({{"--model", "x"}})), std::vector<std::string>{"x"});
  EXPECT_EQ(*take_models(serve_options({}, {"a", "b.gguf"})),
            (std::vector<std::string>{"a", "b.gguf"}));
  const auto both = take_models(serve_options({{"--model", "x"}}, {"a"}));
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().message, "two models are named, --model 'x' and 'a': leave one out");
}

TEST(OnDemand, AFolderOfModelsGivesThemAll) {
  const TempFolder folder;
  folder.write("models/b.gguf", "GGUF...");
  folder.write("models/a/config.json", "{}");
  folder.write("models/a/model.safetensors", "123456");
  folder.write("models/big-00001-of-00002.gguf", "GGUF");
  folder.write("models/big-00002-of-00002.gguf", "GGUF");
  folder.write("models/notes.txt", "no model");
  folder.write("models/empty/readme", "no model");
  const auto found = find_on_demand(serve_options({{"--on-demand", folder.file("models")}}));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(names_of(*found), (std::vector<std::string>{"a", "b", "big-00001-of-00002"}));
  EXPECT_EQ((*found)[0].num_bytes, 6u);
  EXPECT_EQ((*found)[1].num_bytes, 7u);
}

TEST(OnDemand, ElementsAreModelsAndTheStore) {
  const TempFolder folder;
  const std::string file = folder.write("one.gguf", "GGUF");
  folder.write("two/config.json", "{}");
  const auto found =
      find_on_demand(serve_options({{"--on-demand", file + ", " + folder.file("two") + ",store"},
                                    {"--store", folder.file("no-store")}}));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(names_of(*found), (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(find_on_demand(serve_options({}))->empty());
  EXPECT_FALSE(find_on_demand(serve_options({{"--on-demand", "nowhere.gguf"}})).ok());
}

// Its events do not say whose they are.
TEST(ServedModels, KvEventsAreOfOneModel) {
  class Nowhere final : public KvEventSink {
    void on_kv_event(const KvEvent& /*event*/) override {}
  } sink;
  const TempFolder folder;
  const std::string other = folder.write("other.gguf", "GGUF");
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (const auto& [on_demand, specs] :
       {std::pair<std::string, std::vector<std::string>>{"", {"a.gguf", "b.gguf"}},
        {other, {"a.gguf"}}}) {
    const Options options = serve_options({{"--on-demand", on_demand}});
    const auto served = open_served_models(options, specs, &sink, runtimes);
    ASSERT_FALSE(served.ok());
    EXPECT_EQ(served.error().message,
              "--kv-events tells of the cache of one model, but 2 are to be served");
  }
}

// Faults are found before any model is loaded.
TEST(OnDemand, AWrongElementEndsTheStart) {
  std::vector<std::unique_ptr<Runtime>> runtimes;
  const Options options = serve_options({{"--on-demand", "nowhere.gguf"}});
  EXPECT_FALSE(open_served_models(options, {"also-nowhere.gguf"}, nullptr, runtimes).ok());
  EXPECT_TRUE(runtimes.empty());
}

}  // namespace served_models_test
}  // namespace headrace
