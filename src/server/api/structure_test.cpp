#include "server/api/structure.h"

#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/api/structure_fields.h"
#include "server/api/test_support.h"

namespace headrace {
namespace structure_test {

using test::kEos;

class StructureTest : public testing::Test {
 protected:
  Result<Structure> parse(std::string_view body) {
    const auto value = parse_body(body).value();
    return parse_structure(value.as_object(), ignored_);
  }

  // What the structure allows of a text, one byte after the other.
  std::string allowed(Constraint& constraint, std::string_view text) {
    std::string taken;
    for (const char c : text) {
      if (!allows(constraint, static_cast<unsigned char>(c))) break;
      constraint.accept(static_cast<unsigned char>(c));
      taken += c;
    }
    return taken;
  }
  bool allows(Constraint& constraint, int32_t id) {
    std::vector<uint64_t> mask(mask_words(test::kVocabSize), 0);
    constraint.fill_mask(mask);
    return mask_allows(mask.data(), id);
  }

  std::shared_ptr<Constraint> constraint(Structure::Kind kind, std::string text,
                                         Request prototype = {}) {
    GenerationRequest request;
    request.form.structure = {kind, std::move(text), "form"};
    request.prototype = std::move(prototype);
    const Status status = apply_structure(model_, request);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return request.make_constraint();
  }

  IgnoredFields ignored_;
  const TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 64};
};

TEST_F(StructureTest, EveryNameOfEveryForm) {
  using Kind = Structure::Kind;
  struct Row {
    std::string_view body;
    Kind kind;
    std::string_view text, param;
  };
  for (
      const Row& row : {
          Row{R"({"response_format":{"type":"text"}})", Kind::kNone, "", ""},
          Row{R"({"response_format":{"type":"json_object"}})", Kind::kJsonObject, "",
              "response_format"},
          Row{R"({"response_format":{"type":"json_object","schema":{"a":1}}})", Kind::kJsonSchema,
              R"({"a":1})", "response_format.schema"},
          Row{R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"a":1}}}})",
              Kind::kJsonSchema, R"({"a":1})", "response_format.json_schema.schema"},
          Row{R"({"response_format":{"type":"json_schema","name":"n","schema":"{}"}})",
              Kind::kJsonSchema, "{}", "response_format.schema"},
          Row{R"({"response_format":{"type":"regex","pattern":"a"}})", Kind::kRegex, "a",
              "response_format.pattern"},
          Row{R"({"response_format":{"type":"grammar","grammar":"g"}})", Kind::kGrammar, "g",
              "response_format.grammar"},
          Row{R"({"response_format":{"type":"structural_tag","format":{}}})", Kind::kTags,
              R"({"type":"structural_tag","format":{}})", "response_format"},
          Row{R"({"guided_json":{"a":1}})", Kind::kJsonSchema, R"({"a":1})", "guided_json"},
          Row{R"({"guided_json":true})", Kind::kJsonSchema, "true", "guided_json"},
          Row{R"({"guided_regex":"a"})", Kind::kRegex, "a", "guided_regex"},
          Row{R"({"guided_choice":["a"]})", Kind::kChoice, R"(["a"])", "guided_choice"},
          Row{R"({"guided_grammar":"g"})", Kind::kGrammar, "g", "guided_grammar"},
          Row{R"({"guided_json_object":true})", Kind::kJsonObject, "true", "guided_json_object"},
          Row{R"({"json_schema":"{}"})", Kind::kJsonSchema, "{}", "json_schema"},
          Row{R"({"regex":"a"})", Kind::kRegex, "a", "regex"},
          Row{R"({"ebnf":"g"})", Kind::kGrammar, "g", "ebnf"},
          Row{R"({"grammar":"g"})", Kind::kGrammar, "g", "grammar"},
          Row{R"({"structural_tag":{"tags":[]}})", Kind::kTags, R"({"tags":[]})", "structural_tag"},
          Row{R"({"structured_outputs":{"json":{"a":1}}})", Kind::kJsonSchema, R"({"a":1})",
              "structured_outputs.json"},
          Row{R"({"structured_outputs":{"regex":"a"}})", Kind::kRegex, "a",
              "structured_outputs.regex"},
          Row{R"({"structured_outputs":{"choice":["a"]}})", Kind::kChoice, R"(["a"])",
              "structured_outputs.choice"},
          Row{R"({"structured_outputs":{"json_object":true}})", Kind::kJsonObject, "true",
              "structured_outputs.json_object"},
          Row{R"({"structured_outputs":null,"guided_json":null,"guided_regex":"","guided_choice":[],"json_object":false})",
              Kind::kNone, "", ""},
          Row{"{}", Kind::kNone, "", ""},
      }) {
    const auto structure = parse(row.body);
    ASSERT_TRUE(structure.ok()) << row.body << structure.error().message;
    EXPECT_EQ(structure->kind, row.kind) << row.body;
    EXPECT_EQ(structure->text, row.text) << row.body;
    EXPECT_EQ(structure->param, row.param) << row.body;
  }
}

TEST_F(StructureTest, TwoFormsAreOneTooMany) {
  const auto structure = parse(R"({"response_format":{"type":"json_object"},"regex":"a"})");
  ASSERT_FALSE(structure.ok());
  EXPECT_EQ(structure.error().param, "regex");
  EXPECT_FALSE(parse(R"({"structured_outputs":{"regex":"a","choice":["b"]}})").ok());
  EXPECT_FALSE(parse(R"({"structured_outputs":{"whitespace_pattern":" "}})").ok());
  EXPECT_FALSE(parse(R"({"response_format":{"type":"yaml"}})").ok());
}

TEST_F(StructureTest, WhatCannotBeEnforcedNamesItsField) {
  GenerationRequest request;
  request.form.structure = {Structure::Kind::kJsonSchema, R"({"uniqueItems":true})", "the.field"};
  const Status status = apply_structure(model_, request);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().param, "the.field");
  EXPECT_NE(status.error().message.find("uniqueItems"), std::string::npos);
  EXPECT_FALSE(request.make_constraint);
  EXPECT_FALSE(check_json_schema(model_, R"({"not":{}})").ok());
  EXPECT_TRUE(check_json_schema(model_, R"({"type":"object"})").ok());
}

TEST_F(StructureTest, NothingIsAskedNothingIsMade) {
  GenerationRequest request;
  ASSERT_TRUE(apply_structure(model_, request).ok());
  EXPECT_FALSE(request.make_constraint);
}

TEST_F(StructureTest, EndsComeWhereTheTextIsComplete) {
  const auto held = constraint(Structure::Kind::kRegex, "ab+");
  EXPECT_FALSE(allows(*held, kEos));
  EXPECT_EQ(allowed(*held, "abc"), "ab");
  EXPECT_TRUE(allows(*held, kEos) && allows(*held, 'b'));
  EXPECT_FALSE(held->is_finished());
  held->rollback(1);
  EXPECT_FALSE(allows(*held, kEos));
}

TEST_F(StructureTest, WhereNothingMayFollowItIsFinished) {
  const auto held = constraint(Structure::Kind::kChoice, R"(["no","not"])");
  EXPECT_EQ(allowed(*held, "no"), "no");
  EXPECT_FALSE(held->is_finished());
  EXPECT_EQ(allowed(*held, "t"), "t");
  EXPECT_TRUE(held->is_finished());
  held->rollback(2);
  EXPECT_FALSE(held->is_finished());
  EXPECT_EQ(allowed(*held, "ot"), "ot");
}

TEST_F(StructureTest, StopIdsComeWhereEndsDo) {
  Request prototype;
  prototype.stop_ids = {test::kBos};
  const auto held = constraint(Structure::Kind::kRegex, "a+", prototype);
  EXPECT_FALSE(allows(*held, test::kBos));
  EXPECT_EQ(allowed(*held, "a"), "a");
  EXPECT_TRUE(allows(*held, test::kBos) && allows(*held, kEos));
}

TEST_F(StructureTest, IgnoredEndsComeOnlyWhereNothingElseMay) {
  Request prototype;
  prototype.ignore_eos = true;
  const auto held = constraint(Structure::Kind::kRegex, "a+", prototype);
  EXPECT_EQ(allowed(*held, "aa"), "aa");
  EXPECT_FALSE(allows(*held, kEos));
  EXPECT_TRUE(allows(*held, 'a'));
  held->accept(kEos);  // a guess
  EXPECT_TRUE(held->is_finished());
  EXPECT_FALSE(allows(*held, kEos) || allows(*held, 'a'));
  held->rollback(2);
  EXPECT_FALSE(held->is_finished());
  EXPECT_EQ(allowed(*held, "a"), "a");
}

TEST_F(StructureTest, ForcedTokensAreProposed) {
  const auto held = constraint(Structure::Kind::kRegex, "[xy]=forced;[ab]");
  std::vector<int32_t> draft = {7};
  EXPECT_EQ(allowed(*held, "x"), "x");
  held->propose(16, &draft);
  std::string text;
  for (size_t i = 1; i < draft.size(); ++i) text += static_cast<char>(draft[i]);
  EXPECT_EQ(draft[0], 7);
  EXPECT_EQ(text, "=forced;");
  draft.clear();
  held->propose(3, &draft);
  EXPECT_EQ(draft.size(), 3u);
  EXPECT_EQ(allowed(*held, "=forced;a"), "=forced;a");
}

TEST_F(StructureTest, ChoicesDoNotShareTheirPlace) {
  GenerationRequest request;
  request.form.structure = {Structure::Kind::kRegex, "abc", "regex"};
  ASSERT_TRUE(apply_structure(model_, request).ok());
  const auto one = request.make_constraint(), other = request.make_constraint();
  EXPECT_EQ(allowed(*one, "abc"), "abc");
  EXPECT_FALSE(other->is_finished());
  EXPECT_EQ(allowed(*other, "abc"), "abc");
}

}  // namespace structure_test
}  // namespace headrace
