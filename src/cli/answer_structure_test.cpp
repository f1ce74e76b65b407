// The form of answers from options, for a model here and for a server.
#include "cli/answer_structure.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace answer_structure_test {

using testing::TempFolder;
using StructureKind = Structure::Kind;

Result<Structure> structure_of(const OptionTexts& given) {
  return structure_from_options(Options::create("run", given, {}).value());
}

TEST(AnswerStructure, IsATextOrAFile) {
  const TempFolder folder;
  const std::string schema = R"({"type":"integer"})";
  const std::string grammar = "start: \"yes\" | \"no\"\n";
  const Structure text = structure_of({{"--json-schema", schema}}).value();
  EXPECT_EQ(text.kind, StructureKind::kJsonSchema);
  EXPECT_EQ(text.text, schema);
  EXPECT_EQ(text.param, "--json-schema");
  EXPECT_EQ(structure_of({{"--json-schema", folder.write("s.json", schema)}})->text, schema);
  EXPECT_EQ(structure_of({{"--grammar", grammar}})->text, grammar);
  EXPECT_EQ(structure_of({{"--grammar", folder.write("g.lark", grammar)}})->text, grammar);
  const Structure regex = structure_of({{"--regex", "[0-9]+"}}).value();
  EXPECT_EQ(regex.kind, StructureKind::kRegex);
  EXPECT_EQ(regex.text, "[0-9]+");
  EXPECT_EQ(structure_of({})->kind, StructureKind::kNone);
}

TEST(AnswerStructure, FaultsAreNamedBeforeAModelIsLoaded) {
  const auto two = structure_of({{"--regex", "a"}, {"--grammar", "start: \"a\""}});
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(two.error().message,
            "--regex and --grammar are given, but an answer has one form: leave one out");
  const auto broken = structure_of({{"--json-schema", "{\"type\":"}});
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(broken.error().message.starts_with("the schema of --json-schema is not valid JSON"))
      << broken.error().message;
  const auto absent = structure_of({{"--json-schema", "no-such-file.json"}});
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(absent.error().message.find("no-such-file.json"), std::string::npos);
}

TEST(AnswerStructure, AServerIsAskedInTheFieldsThatItKnows) {
  const auto body_of = [](const Structure& structure) {
    boost::json::object body;
    add_structure(structure, body);
    return body;
  };
  EXPECT_TRUE(body_of({}).empty());
  EXPECT_EQ(body_of({StructureKind::kJsonSchema, R"({"type":"null"})", ""}),
            boost::json::parse(R"({"response_format":{"type":"json_schema","json_schema":)"
                               R"({"name":"answer","strict":true,"schema":{"type":"null"}}}})")
                .as_object());
  EXPECT_EQ(body_of({StructureKind::kRegex, "a+", ""}),
            boost::json::parse(R"({"structured_outputs":{"regex":"a+"}})").as_object());
  EXPECT_EQ(body_of({StructureKind::kGrammar, "start: \"a\"", ""}),
            boost::json::parse(R"({"structured_outputs":{"grammar":"start: \"a\""}})").as_object());
}

}  // namespace answer_structure_test
}  // namespace headrace
