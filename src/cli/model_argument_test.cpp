// Which model a command means: words that name one, words that only look like one, and text.
#include "cli/model_argument.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"
#include "cli/suggest.h"

namespace headrace {
namespace model_argument_test {

using testing::TempFolder;
using Words = std::vector<std::string>;

Result<ModelArgument> taken(const Words& words, const std::string& model = "") {
  std::map<std::string, std::string, std::less<>> given;
  if (!model.empty()) given["--model"] = model;
  return take_model_and_text(Options::create("run", given, words).value());
}

TEST(ModelArgument, TheFirstWordIsTheModelIfItNamesOne) {
  const TempFolder folder;
  const std::string gguf = folder.write("named.bin", "GGUF and more");
  folder.write("model/config.json", "{}");
  for (const std::string& name :
       {std::string("smollm2:135m"), std::string("hf:org/repo"), std::string("https://host/m.gguf"),
        std::string("missing.gguf"), std::string("./dir/missing.safetensors"), gguf,
        folder.file("model")}) {
    const auto argument = taken({name, "Why", "is it?"});
    ASSERT_TRUE(argument.ok()) << name << ": " << argument.error().message;
    EXPECT_EQ(argument->model, name);
    EXPECT_TRUE(argument->named) << name;
    EXPECT_EQ(argument->words, (Words{"Why", "is it?"})) << name;
  }
}

TEST(ModelArgument, TextIsTextAndTheModelIsTheUsualOne) {
  const TempFolder folder;
  const std::string notes = folder.write("notes.txt", "no model");
  for (const Words& words :
       {Words{"Why is the sky blue?"}, Words{"Why", "is", "the", "sky"},
        Words{"Translate: a b.gguf please"}, Words{notes, "summarise"}, Words{"hello"}, Words{}}) {
    const auto argument = taken(words);
    ASSERT_TRUE(argument.ok()) << argument.error().message;
    EXPECT_EQ(argument->model, "smollm2:135m");
    EXPECT_FALSE(argument->named);
    EXPECT_EQ(argument->words, words);
  }
}

TEST(ModelArgument, BehindATypedModelEveryWordIsText) {
  const auto argument = taken({"smollm2:135m", "x.gguf"}, "other.gguf");
  ASSERT_TRUE(argument.ok());
  EXPECT_EQ(argument->model, "other.gguf");
  EXPECT_TRUE(argument->named);
  EXPECT_EQ(argument->words, (Words{"smollm2:135m", "x.gguf"}));
}

TEST(ModelArgument, WordsThatLookLikeAModelAreRefusedWithWhatWasMeant) {
  struct Case {
    Words words;
    std::string message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{"smollm2:135n", "hi"}, "there is no model 'smollm2:135n'; did you mean smollm2:135m?"},
           {{"smollm2", "hi"}, "there is no model 'smollm2'; did you mean smollm2:135m?"},
           {{"Qwen/Qwen2.5-0.5B", "hi"},
            "there is no model 'Qwen/Qwen2.5-0.5B'; did you mean hf:Qwen/Qwen2.5-0.5B?"},
           {{"mistral:latest", "hi"}, "there is no model 'mistral:latest'"},
           {{"llama3"}, "there is no model 'llama3'"},
       }) {
    const auto argument = taken(c.words);
    ASSERT_FALSE(argument.ok()) << c.message;
    EXPECT_EQ(argument.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(argument.error().message, c.message);
    EXPECT_NE(argument.error().hint.find("as text it goes behind a model: smollm2:135m " +
                                         c.words.front()),
              std::string::npos)
        << argument.error().hint;
  }
}

TEST(ModelArgument, AFileThatIsNoModelIsNotLoaded) {
  const TempFolder folder;
  const std::string notes = folder.write("notes.txt", "no model");
  for (const std::string& path : {notes, folder.path()}) {
    const auto argument = taken({path});
    ASSERT_FALSE(argument.ok()) << path;
    EXPECT_EQ(argument.error().message, "'" + path + "' is a file or folder, but no model");
    EXPECT_EQ(argument.error().hint,
              "to give a file to the model: headrace COMMAND MODEL \"PROMPT\" < FILE");
  }
}

TEST(ModelArgument, OfCommandsWithFewWordsOneMoreIsTheModel) {
  const auto take = [](const Words& words, size_t max_others, size_t skipped,
                       const std::string& model = "") {
    std::map<std::string, std::string, std::less<>> given;
    if (!model.empty()) given["--model"] = model;
    return take_model(Options::create("eval", given, words).value(), max_others, skipped);
  };
  EXPECT_EQ(take({"perplexity", "whatever", "text.txt"}, 1, 1)->model, "whatever");
  EXPECT_EQ(take({"perplexity", "whatever", "text.txt"}, 1, 1)->words, Words{"text.txt"});
  EXPECT_EQ(take({"perplexity", "text.txt"}, 1, 1)->model, "smollm2:135m");
  EXPECT_EQ(take({"perplexity", "m.gguf"}, 1, 1)->model, "m.gguf");
  EXPECT_TRUE(take({"perplexity", "m.gguf"}, 1, 1)->words.empty());
  EXPECT_EQ(take({"perplexity", "m.gguf"}, 1, 1, "n.gguf")->words, Words{"m.gguf"});
  const auto two = take({"perplexity", "m.gguf", "text.txt"}, 1, 1, "n.gguf");
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().message,
            "two models are named, --model 'n.gguf' and 'm.gguf': leave one out");
}

TEST(ModelArgument, NearestModels) {
  struct Case {
    std::string spec, nearest;
  };
  for (const Case& c : std::initializer_list<Case>{{"smolm2:135m", "smollm2:135m"},
                                                   {"gemma3:270n", "gemma3:270m"},
                                                   {"gemma3", "gemma3:270m"},
                                                   {"org/model-7b", "hf:org/model-7b"},
                                                   {"and/or", ""},
                                                   {"1/2", ""},
                                                   {"two words", ""},
                                                   {"zzzzzz", ""}}) {
    EXPECT_EQ(nearest_model(c.spec), c.nearest) << c.spec;
  }
}

TEST(NearestNameRules, AnEditPerThreeLettersOrABeginning) {
  const Words names = {"--temperature", "--top-k", "--top-p", "--seed"};
  struct Case {
    std::string word, nearest;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"--tempreature", "--temperature"},
           {"--TEMPERATURE", "--temperature"},
           {"--temp", "--temperature"},
           {"--te", "--temperature"},
           {"--topk", "--top-k"},
           {"--top-", "--top-k"},
           {"--sed", "--seed"},
           {"--need", "--seed"},
           {"--frequency", ""},
           {"x", ""},
       }) {
    EXPECT_EQ(nearest_name(c.word, names), c.nearest) << c.word;
  }
}

}  // namespace model_argument_test
}  // namespace headrace
