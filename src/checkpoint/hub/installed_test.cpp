// What the store holds under which names, and what goes when one of them is removed.
#include "checkpoint/hub/installed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/testing/temp_folder.h"
#include "checkpoint/hub/hub.h"

namespace headrace {
namespace installed_test {

namespace fs = std::filesystem;
using testing::TempFolder;

// A store as pulls leave it: a whole and a broken named model, repositories, files of them, a URL.
class InstalledTest : public ::testing::Test {
 protected:
  InstalledTest() {
    store_.write("smollm2-135m.gguf", "");
    fs::resize_file(store_.file("smollm2-135m.gguf"), named_models()[0].num_bytes);
    store_.write("gemma3-270m.gguf", "only the beginning");
    store_.write("qwen2.5-coder-0.5b.gguf.incoming/part-01", "half");
    store_.write("hf/org--repo@main/config.json", "{}");
    store_.write("hf/org--repo@main/model.safetensors", "0123456789");
    store_.write("hf/a--b--c@refs--pr--3/config.json", "{}");
    store_.write("hf/org--repo@main.gguf/q4.gguf", "gguf");
    store_.write("hf/org--repo@main.gguf/q8.gguf.part", "gg");
    store_.write("hf/org--new@main.incoming/config.json.part", "{");
    store_.write("url/0123456789abcdef/model.gguf", "from a URL");
    store_.write(".locks/x", "");
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    const auto models = list_installed(store_.path());
    EXPECT_TRUE(models.ok()) << models.error().message;
    for (const InstalledModel& model : *models) names.push_back(model.name);
    return names;
  }

  TempFolder store_;
};

TEST_F(InstalledTest, WholeModelsAreListedUnderNamesThatFindThemAgain) {
  EXPECT_EQ(names(),
            (std::vector<std::string>{"hf:a/b--c@refs--pr--3", "hf:org/repo", "hf:org/repo:q4.gguf",
                                      "smollm2:135m", "url/0123456789abcdef/model.gguf"}));
  const auto models = list_installed(store_.path());
  for (const InstalledModel& model : *models) {
    const auto path = resolve_model(model.name, store_.path());
    ASSERT_TRUE(path.ok()) << model.name << ": " << path.error().message;
    EXPECT_EQ(*path, model.path) << model.name;
    EXPECT_GT(model.modified, 1'600'000'000) << model.name;
  }
  EXPECT_EQ((*models)[1].num_bytes, 12u);  // both files of the folder
  EXPECT_EQ((*models)[3].num_bytes, named_models()[0].num_bytes);
}

TEST_F(InstalledTest, RemovalFreesTheModelAndWhatAPullLeftOfIt) {
  const auto freed = remove_installed("hf:org/repo", store_.path());
  ASSERT_TRUE(freed.ok()) << freed.error().message;
  EXPECT_EQ(*freed, 12u);
  EXPECT_FALSE(fs::exists(store_.file("hf/org--repo@main")));
  EXPECT_TRUE(fs::exists(store_.file("hf/org--repo@main.gguf/q4.gguf")));  // another model
  EXPECT_EQ(remove_installed("hf:org/new", store_.path()).value(), 1u);
  EXPECT_EQ(remove_installed("qwen2.5-coder:0.5b", store_.path()).value(), 4u);
  EXPECT_EQ(remove_installed("hf:org/repo:q8.gguf", store_.path()).value(), 2u);
  EXPECT_EQ(remove_installed("url/0123456789abcdef/model.gguf", store_.path()).value(), 10u);
  EXPECT_EQ(names(), (std::vector<std::string>{"hf:a/b--c@refs--pr--3", "hf:org/repo:q4.gguf",
                                               "smollm2:135m"}));
}

TEST_F(InstalledTest, ASplitModelIsOneModelWithAllItsParts) {
  const std::string folder = "hf/org--split@main.gguf/";
  store_.write(folder + "Q8--m-00001-of-00003.gguf", "1");
  store_.write(folder + "Q8--m-00002-of-00003.gguf", "22");
  store_.write(folder + "Q8--m-00003-of-00003.gguf", "333");
  store_.write(folder + "Q8--m-00001-of-00003.gguf.incoming/m-00003-of-00003.gguf.part", "4444");
  store_.write(folder + "Q4--m-00002-of-00003.gguf", "of a model without a first part");
  store_.write(folder + "Q8--m-00002-of-00004.gguf", "the same");
  const std::vector<InstalledModel> models = list_installed(store_.path()).value();
  const auto is_split = [](const InstalledModel& model) {
    return model.name.starts_with("hf:org/split");
  };
  ASSERT_EQ(std::count_if(models.begin(), models.end(), is_split), 1);
  const auto model = std::find_if(models.begin(), models.end(), is_split);
  EXPECT_EQ(model->name, "hf:org/split:Q8--m-00001-of-00003.gguf");
  EXPECT_EQ(model->num_bytes, 6u);
  EXPECT_EQ(remove_installed("hf:org/split:Q8/m-00001-of-00003.gguf", store_.path()).value(), 10u);
  EXPECT_EQ(std::distance(fs::directory_iterator(store_.file(folder)), {}), 2);
  // Parts alone go by the name of the model too.
  EXPECT_EQ(remove_installed("hf:org/split:Q4/m-00001-of-00003.gguf", store_.path()).value(), 31u);
}

TEST_F(InstalledTest, WhatIsNotThereAndWhatIsNoNameAreRefused) {
  const auto missing = remove_installed("hf:org/other", store_.path());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("'hf:org/other' is not in the model folder"),
            std::string::npos)
      << missing.error().message;
  const std::string file = store_.write("elsewhere.gguf", "x");
  for (const std::string& name : {file, std::string("url/../elsewhere.gguf"), std::string("../x"),
                                  std::string(".locks/x"), std::string()}) {
    const auto removed = remove_installed(name, store_.path());
    ASSERT_FALSE(removed.ok()) << name;
    EXPECT_EQ(removed.error().code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_TRUE(fs::exists(file));
}

TEST(Installed, AStoreThatDoesNotExistIsEmpty) {
  const TempFolder folder;
  EXPECT_TRUE(list_installed(folder.file("none")).value().empty());
  EXPECT_EQ(remove_installed("smollm2:135m", folder.file("none")).error().code,
            ErrorCode::kNotFound);
}

}  // namespace installed_test
}  // namespace headrace
