// Bodies of llama.cpp's clients to requests.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <deque>

#include "server/api/json.h"
#include "server/api/llamacpp/llamacpp.h"
#include "server/api/test_support.h"

namespace headrace {
namespace llamacpp_parse_test {

class LlamaParse : public testing::Test {
 protected:
  Result<ParsedRequest> parse(ParseFunction* function, std::string_view members) {
    bodies_.push_back(parse_body(fmt::format("{{{}}}", members)).value());
    return function(bodies_.back().get_object(), model_);
  }
  // With a prompt, and members that begin with a comma.
  Result<ParsedRequest> complete(std::string_view members) {
    return parse(parse_llama_completion, fmt::format(R"("prompt":"Hi"{})", members));
  }
  Request request_of(std::string_view members) {
    const auto parsed = complete(members);
    EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
    return parsed.ok() ? parsed->request.prototype : Request();
  }
  static std::string error_of(const Result<ParsedRequest>& parsed) {
    return parsed.ok() ? "no error" : parsed.error().to_string();
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted", "alias"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  std::deque<boost::json::value> bodies_;  // what is parsed of them views them
};

TEST_F(LlamaParse, EverySamplerIsRead) {
  const auto parsed = complete(
      R"(,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"repeat_penalty":1.1,
          "presence_penalty":0.2,"frequency_penalty":0.3,"seed":5,"n_predict":12,"stop":"END",
          "logit_bias":{"65":-2.5},"ignore_eos":true,"stream":true,"n_probs":4)");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const Request& request = parsed->request.prototype;
  const SamplingParams& sampling = request.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 0.2f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 0.3f);
  EXPECT_EQ(sampling.seed, 5u);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{65, -2.5f}}));
  EXPECT_EQ(request.max_tokens, 12);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.num_logprobs, 4);
  EXPECT_EQ(parsed->request.stop, std::vector<std::string>{"END"});
  EXPECT_TRUE(parsed->request.stream);
  EXPECT_EQ(&parsed->renderer->dialect(), &kLlamaCpp);
}

TEST_F(LlamaParse, SamplersThatAreNotNamedAreOff) {
  constexpr const char* kAll = R"(,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,
      "repeat_penalty":1.1,"typical_p":0.5,"xtc_probability":0.5)";
  const SamplingParams some =
      request_of(std::string(kAll) + R"(,"samplers":["top_k","top_p","infill"])").sampling;
  EXPECT_FLOAT_EQ(some.temperature, 1);
  EXPECT_EQ(some.top_k, 7);
  EXPECT_FLOAT_EQ(some.top_p, 0.9f);
  EXPECT_FLOAT_EQ(some.min_p, 0);
  EXPECT_FLOAT_EQ(some.repetition_penalty, 1);
  EXPECT_FLOAT_EQ(some.typical_p, 1);
  EXPECT_FLOAT_EQ(some.xtc_probability, 0);
  ASSERT_TRUE(some.infill);
  EXPECT_EQ(some.infill('H'), "H");
  const SamplingParams warm =
      request_of(std::string(kAll) + R"(,"samplers":["temperature"])").sampling;
  EXPECT_FLOAT_EQ(warm.temperature, 0.5f);
  EXPECT_EQ(warm.top_k, 0);
  EXPECT_FALSE(warm.infill);
  EXPECT_FLOAT_EQ(request_of(R"(,"temperature":0.5,"samplers":[])").sampling.temperature, 1);
}

TEST_F(LlamaParse, SamplersMayBeAStringOfLetters) {
  constexpr const char* kAll = R"(,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1)";
  const SamplingParams some = request_of(std::string(kAll) + R"(,"samplers":"kpi")").sampling;
  EXPECT_FLOAT_EQ(some.temperature, 1);
  EXPECT_EQ(some.top_k, 7);
  EXPECT_FLOAT_EQ(some.top_p, 0.9f);
  EXPECT_FLOAT_EQ(some.min_p, 0);
  EXPECT_TRUE(some.infill);
  const SamplingParams usual =
      request_of(std::string(kAll) + R"(,"samplers":"edskfypmxta")").sampling;
  EXPECT_FLOAT_EQ(usual.temperature, 0.5f);
  EXPECT_FLOAT_EQ(usual.min_p, 0.1f);
  EXPECT_FALSE(usual.infill);
  EXPECT_EQ(request_of(std::string(kAll) + R"(,"samplers":"")").sampling.top_k, 0);
}

TEST_F(LlamaParse, SamplersStandInTheOrderInWhichTheyAreDone) {
  // As user interfaces send it: what is off may stand anywhere.
  constexpr const char* kUsual = R"(,"top_k":7,"top_p":0.9,"samplers":["penalties","dry",
      "top_n_sigma","top_k","typ_p","tfs_z","typical_p","xtc","top_p","adaptive_p","min_p",
      "temperature"])";
  EXPECT_TRUE(complete(kUsual).ok());
  const std::pair<const char*, const char*> wrong[] = {
      {R"(,"top_k":7,"top_p":0.9,"samplers":["top_p","top_k"])", R"(samplers is "top_k")"},
      {R"(,"samplers":["top-k"])", R"(samplers is "top-k")"},
      {R"(,"samplers":[1])", "samplers is 1"},
      {R"(,"samplers":"kz")", "samplers is a string with 'z'"},
      {R"(,"top_k":7,"top_p":0.9,"samplers":"pk")", R"(samplers is "top_k")"},
      {R"(,"samplers":7)", "samplers is 7"},
      {R"(,"top_k":0,"samplers":["infill"])", "samplers is infill with top_k 0"},
      {R"(,"top_k":300,"samplers":["top_k","infill"])", "samplers is infill with top_k 300"},
  };
  for (const auto& [members, message] : wrong) {
    EXPECT_NE(error_of(complete(members)).find(message), std::string::npos)
        << error_of(complete(members));
  }
}

TEST_F(LlamaParse, WhatIsNotSaidIsTheModelsOwn) {
  bundle_.sampling.temperature = 0.25f;
  bundle_.sampling.top_k = 20;
  const auto parsed = complete("");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const Request& request = parsed->request.prototype;
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.25f);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.max_tokens, 1000);  // what the context leaves
  EXPECT_EQ(request.num_logprobs, std::nullopt);
  EXPECT_FALSE(parsed->request.has_max_tokens);
  EXPECT_FALSE(parsed->request.stream);
  EXPECT_TRUE(parsed->request.headers.empty());
  EXPECT_NE(request_of("").sampling.seed, request_of("").sampling.seed);
  EXPECT_NE(request_of(R"(,"seed":-1)").sampling.seed, request_of(R"(,"seed":-1)").sampling.seed);
}

TEST_F(LlamaParse, TheLengthHasTwoNames) {
  struct Case {
    const char* members;
    int32_t length;
    bool is_chosen;
  };
  const Case cases[] = {
      {R"(,"n_predict":9)", 9, true},
      {R"(,"max_tokens":5)", 5, true},
      {R"(,"n_predict":9,"max_tokens":5)", 9, true},
      {R"(,"max_tokens":5,"n_predict":9)", 9, true},  // in whichever order
      {R"(,"n_predict":-1)", 1000, false},
      {R"(,"n_predict":-2)", 1000, false},
      {R"(,"max_tokens":5,"n_predict":-1)", 1000, false},
      {R"(,"max_tokens":5,"n_predict":null)", 5, true},
  };
  for (const Case& each : cases) {
    const auto parsed = complete(each.members);
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_EQ(parsed->request.prototype.max_tokens, each.length) << each.members;
    EXPECT_EQ(parsed->request.has_max_tokens, each.is_chosen) << each.members;
  }
}

TEST_F(LlamaParse, WhatIsWrongIsSaidInWords) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"temperature":"hot")", R"(temperature is "hot", but it must be a number from 0 to 100)"},
      {R"(,"top_p":0)", "top_p is 0, but it must be a number above 0 and at most 1"},
      {R"(,"repeat_penalty":0)", "repeat_penalty is 0, but it must be a number from 0.01 to 100"},
      {R"(,"top_k":1.5)", "top_k is 1.5, but it must be a whole number from -1 to 2147483647"},
      {R"(,"seed":1.5)", "seed is 1.5, but it must be a whole number"},
      {R"(,"stream":1)", "stream is 1, but it must be true or false"},
      {R"(,"ignore_eos":"yes")", R"(ignore_eos is "yes", but it must be true or false)"},
      {R"(,"return_tokens":[])", "return_tokens is a list of 0, but it must be true or false"},
      {R"(,"n_probs":21)", "n_probs is 21, but it must be a whole number from 0 to 20"},
      {R"(,"stop":["a",""])", R"(stop is "", but it must be strings of 1 to 256 bytes)"},
      {R"(,"stop":[["a"]])", "stop is a list in a list, but it must be strings of 1 to 256 bytes"},
      {R"(,"logit_bias":7)", "logit_bias is 7, but it must be an object"},
      {R"(,"logit_bias":[[65]])",
       "logit_bias is a list that holds a list of 1, but it must be a list of pairs, each a token "
       "id and a number"},
      {R"(,"logit_bias":[[258,1]])",
       "logit_bias is a list with the token 258, but it must be of token ids from 0 to 257"},
      {R"(,"logit_bias":[[65,true]])",
       "logit_bias.65 is true, but it must be a number from -100 to 100"},
      {R"(,"logit_bias":{"A":1})",
       R"(logit_bias has the key "A", but its keys must be token ids from 0 to 257)"},
      {R"(,"grammar":7)", "grammar is 7, but it must be a string"},
      {R"(,"repeat_last_n":-2)",
       "repeat_last_n is -2, but it must be a whole number from -1 to 2147483647"},
      {R"(,"repeat_penalty":1.1,"repeat_last_n":9)",
       "repeat_last_n is 9, but it must be -1 or 0 where there is a repeat_penalty (penalties look "
       "at the whole text)"},
      {R"(,"model":"absent")",
       R"(the model "absent" does not exist here, this server has 'scripted')"},
  };
  for (const auto& [members, message] : cases) EXPECT_EQ(error_of(complete(members)), message);
}

TEST_F(LlamaParse, AFalseBiasForbidsTheToken) {
  const auto& bias = request_of(R"(,"logit_bias":[[65,false],[66,1.5]])").sampling.logit_bias;
  ASSERT_EQ(bias.size(), 2u);
  EXPECT_EQ(bias[0].first, 65);
  EXPECT_LT(bias[0].second, -1000.0f);  // below all that a number may say
  EXPECT_EQ(bias[1], (std::pair<int32_t, float>{66, 1.5f}));
}

TEST_F(LlamaParse, WithoutAPenaltyAnyWindowIsTaken) {
  EXPECT_FLOAT_EQ(request_of(R"(,"repeat_last_n":9)").sampling.repetition_penalty, 1.0f);
  EXPECT_FLOAT_EQ(
      request_of(R"(,"repeat_penalty":1.5,"repeat_last_n":0)").sampling.repetition_penalty, 1.0f);
  EXPECT_FLOAT_EQ(
      request_of(R"(,"repeat_penalty":1.5,"repeat_last_n":-1)").sampling.repetition_penalty, 1.5f);
}

TEST_F(LlamaParse, ATextStaysTextAndAListIsIds) {
  const auto text = complete("");
  EXPECT_EQ(std::get<PromptText>(text->prompts.items.front()), "Hi");
  EXPECT_EQ(text->prompts.param, "prompt");
  EXPECT_TRUE(text->prompts.add_special);
  const std::pair<const char*, PromptIds> cases[] = {
      {R"([72,105.0])", {'H', 'i'}},
      {R"(["Hi",33])", {test::kBos, 'H', 'i', '!'}},
      {R"(["<s>Hi"])", {test::kBos, 'H', 'i'}},  // begins once
      {R"([256,"Hi","!"])", {test::kBos, 'H', 'i', '!'}},
      {R"(["",72,"i"])", {test::kBos, 'H', 'i'}},
  };
  for (const auto& [prompt, ids] : cases) {
    const auto parsed = parse(parse_llama_completion, fmt::format(R"("prompt":{})", prompt));
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_EQ(std::get<PromptIds>(parsed->prompts.items.front()), ids) << prompt;
  }
}

TEST_F(LlamaParse, WhatIsNoPromptIsNamed) {
  const std::string needed =
      ", but it must be a string, a list of token ids, or a list of strings and ids";
  const std::pair<const char*, std::string> cases[] = {
      {R"("stream":false)", "prompt is missing" + needed},
      {R"("prompt":null)", "prompt is missing" + needed},
      {R"("prompt":7)", "prompt is 7" + needed},
      {R"("prompt":[])", "prompt is a list of 0" + needed},
      {R"("prompt":["a",[1,2]])", "prompt is a list of 2" + needed},
      {R"("prompt":["","Hi"])",
       "prompt is a list of 2 strings, a prompt each, but it must be one prompt: send a request "
       "for "
       "each"},
      {R"("prompt":[null])", "prompt is null" + needed},
      {R"("prompt":[258])", "prompt holds 258, but token ids are whole numbers from 0 to 257"},
      {R"("prompt":["a",-1])", "prompt holds -1, but token ids are whole numbers from 0 to 257"},
      {R"("prompt":[1.5])", "prompt holds 1.5, but token ids are whole numbers from 0 to 257"},
  };
  for (const auto& [members, message] : cases) {
    const auto parsed = parse(parse_llama_completion, members);
    EXPECT_EQ(error_of(parsed), message);
    EXPECT_EQ(parsed.error().param, "prompt") << members;
  }
}

TEST_F(LlamaParse, AListIsBoundedByTheContext) {
  std::string ids = "1";
  for (int i = 1; i < 1000; ++i) ids += ",1";
  EXPECT_TRUE(parse(parse_llama_completion, fmt::format(R"("prompt":[{}])", ids)).ok());
  const auto parsed = parse(parse_llama_completion, fmt::format(R"("prompt":[{},1])", ids));
  EXPECT_EQ(error_of(parsed),
            "the prompt is too long: it has at least 1001 tokens, but this model's maximum context "
            "length is 1000 tokens, prompt and answer together (shorten the prompt)");
  EXPECT_EQ(parsed.error().param, "prompt");
  const std::string long_text(1001, 'x');
  EXPECT_FALSE(parse(parse_llama_completion, fmt::format(R"("prompt":["{}"])", long_text)).ok());
}

// Each text of a list fits; whoever reads the prompts counts them all.
TEST_F(LlamaParse, TextsOfAListFitTogetherOrAreRefused) {
  const std::string half(600, 'x');
  auto parsed = parse(parse_llama_completion, fmt::format(R"("prompt":["{0}",1,"{0}"])", half));
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const Status read = read_prompts(std::move(parsed->prompts), model_, {}, parsed->request);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read.error().param, "prompt");
}

TEST_F(LlamaParse, AnAnswerIsHeldToASchemaOrAGrammar) {
  using Kind = Structure::Kind;
  struct Case {
    const char* members;
    Kind kind;
    const char* text;
    const char* param;
  };
  const Case cases[] = {
      {"", Kind::kNone, "", ""},
      {R"(,"grammar":"","json_schema":null)", Kind::kNone, "", ""},
      {R"(,"json_schema":{"type": "object"})", Kind::kJsonSchema, R"({"type":"object"})",
       "json_schema"},
      {R"(,"json_schema":{})", Kind::kJsonSchema, "{}", "json_schema"},  // any value
      {R"(,"json_schema":{},"grammar":"")", Kind::kJsonSchema, "{}", "json_schema"},
      {R"(,"grammar":"root ::= \"a\"")", Kind::kGrammar, R"(root ::= "a")", "grammar"},
  };
  for (const Case& each : cases) {
    const auto parsed = complete(each.members);
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const Structure& structure = parsed->request.form.structure;
    EXPECT_EQ(structure.kind, each.kind) << each.members;
    EXPECT_EQ(structure.text, each.text);
    EXPECT_EQ(structure.param, each.param);
  }
  EXPECT_EQ(error_of(complete(R"(,"grammar":"root ::= x","json_schema":{})")),
            "grammar is given beside json_schema, but it must be the only one of the two");
}

// What clients always send is taken as long as it asks for nothing.
TEST_F(LlamaParse, WhatIsNotServedIsRefusedUnlessItAsksForNothing) {
  int num_rows = 0;
  for (const FieldRow& row : dialect_field_rows()) {
    if (row.use != FieldUse::kRefused || (row.places & kInLlamaCompletion) == 0) continue;
    ++num_rows;
    const auto neutral = parse_body(row.neutral).value();
    for (const boost::json::value& value : neutral.as_array()) {
      EXPECT_EQ(error_of(complete(fmt::format(R"(,"{}":{})", row.name, to_text(value)))),
                "no error")
          << row.name;
    }
    EXPECT_TRUE(complete(fmt::format(R"(,"{}":null)", row.name)).ok()) << row.name;
    const auto refused = complete(fmt::format(R"(,"{}":{{"a":1}})", row.name));
    EXPECT_EQ(error_of(refused),
              fmt::format("{} is an object, which is not supported by this server ({})", row.name,
                          row.note));
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(refused.error().param, row.name);
  }
  EXPECT_GT(num_rows, 12);
}

TEST_F(LlamaParse, UnknownFieldsAreNamedInTheHeader) {
  const auto parsed = complete(R"(,"n_predcit":3,"cache_prompt":true,"n_keep":-1)");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  ASSERT_EQ(parsed->request.headers.size(), 1u);
  EXPECT_EQ(parsed->request.headers[0].first, kIgnoredHeader);
  EXPECT_EQ(parsed->request.headers[0].second, "n_predcit (n_predict?)");
}

TEST_F(LlamaParse, TheAnswerRepeatsTheModelsNameAndTheSettings) {
  const auto parsed = complete(R"(,"model":"alias","n_predict":3,"stop":["x"],"temperature":0)");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const std::string event = parsed->renderer->end_stream({});
  const auto last = parse_body(test::events_of(event).front()).value();
  EXPECT_EQ(last.at("model").as_string(), "alias");
  const auto& settings = last.at("generation_settings").as_object();
  EXPECT_EQ(settings.at("n_predict").as_int64(), 3);
  EXPECT_EQ(settings.at("temperature").to_number<double>(), 0.0);
  EXPECT_EQ(to_text(settings.at("stop")), R"(["x"])");
}

class LlamaFill : public LlamaParse {
 protected:
  LlamaFill() { bundle_.infill = InfillMarks{1, 2, 3, false, {1, 2, 3, 4}}; }

  Result<ParsedRequest> fill(std::string_view members) {
    return parse(parse_llama_infill, members);
  }
  PromptIds ids_of(std::string_view members) {
    const auto parsed = fill(members);
    EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
    return parsed.ok() ? std::get<PromptIds>(parsed->prompts.items.front()) : PromptIds();
  }
};

TEST_F(LlamaFill, TheMarksStandAroundBothTexts) {
  EXPECT_EQ(ids_of(R"("input_prefix":"ab","input_suffix":"c")"),
            (PromptIds{test::kBos, 1, 'a', 'b', 2, 'c', 3}));
  EXPECT_EQ(ids_of(R"("input_prefix":"a")"), (PromptIds{test::kBos, 1, 'a', 2, 3}));
  EXPECT_EQ(ids_of(""), (PromptIds{test::kBos, 1, 2, 3}));
  EXPECT_EQ(ids_of(R"("input_prefix":"a","input_suffix":"b","prompt":"xy")"),
            (PromptIds{test::kBos, 1, 'a', 2, 'b', 3, 'x', 'y'}));
  const auto parsed = fill(R"("input_prefix":"a","n_predict":3,"n_probs":2)");
  EXPECT_EQ(parsed->request.prototype.stop_ids, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(parsed->request.prototype.max_tokens, 3);
  EXPECT_EQ(parsed->request.prototype.num_logprobs, 2);
}

TEST_F(LlamaFill, SomeModelsReadTheEndFirst) {
  bundle_.infill = InfillMarks{1, 2, 0, true, {1, 2}};
  EXPECT_EQ(ids_of(R"("input_prefix":"a","input_suffix":"b","prompt":"c",
                      "input_extra":[{"filename":"f","text":"T"}])"),
            (PromptIds{test::kBos, 'f', '\n', 'T', '\n', '\n', 2, 'b', 1, 'a', 'c'}));
}

TEST_F(LlamaFill, OtherFilesComeFirstInTheirOrder) {
  const PromptIds ids = ids_of(R"("input_extra":[{"filename":"a","text":"A"},{"text":"B"}])");
  ASSERT_GT(ids.size(), 4u);
  const std::string text(ids.begin() + 1, ids.end() - 3);
  EXPECT_EQ(text, "a\nA\n\nfile\nB\n\n");
  EXPECT_EQ(ids.front(), test::kBos);
  EXPECT_EQ(ids_of(R"("input_extra":[])"), ids_of(""));
}

TEST_F(LlamaFill, WhatIsWrongIsNamed) {
  std::string files = R"({"text":"a"})";
  for (int i = 0; i < 256; ++i) files += R"(,{"text":"a"})";
  const std::pair<std::string, const char*> cases[] = {
      {R"("input_prefix":7)", "input_prefix is 7, but it must be a string"},
      {R"("input_suffix":[])", "input_suffix is a list of 0, but it must be a string"},
      {R"("prompt":[65])", "prompt is a list of 1, but it must be a string"},
      {R"("input_extra":{})", "input_extra is an object, but it must be a list"},
      {R"("input_extra":[7])", "input_extra[0] is 7, but it must be an object"},
      {R"("input_extra":[{"text":"a"},{"filename":"b"}])",
       "input_extra[1].text is missing, but it must be a string"},
      {R"("input_extra":[{"text":"a","filename":3}])",
       "input_extra[0].filename is 3, but it must be a string"},
      {fmt::format(R"("input_extra":[{}])", files),
       "input_extra is a list of 257, but it must be at most 256 files"},
  };
  for (const auto& [members, message] : cases) EXPECT_EQ(error_of(fill(members)), message);
  const std::string long_text(1001, 'x');
  for (const char* name : {"input_prefix", "input_suffix", "prompt"}) {
    EXPECT_FALSE(fill(fmt::format(R"("{}":"{}")", name, long_text)).ok()) << name;
  }
  bundle_.infill.reset();
  EXPECT_EQ(error_of(fill("")),
            "input_suffix is given, but this model was not trained to fill in text before one "
            "(leave it out, or use a model for code that has fill-in-the-middle tokens)");
}

}  // namespace llamacpp_parse_test
}  // namespace headrace
