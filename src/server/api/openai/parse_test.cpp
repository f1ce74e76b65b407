#include "server/api/openai/openai.h"

#include <gtest/gtest.h>

#include <set>

#include "server/api/json.h"
#include "server/api/test_support.h"
#include "server/api/tool_use.h"

namespace headrace {
namespace openai_parse_test {

class ParseTest : public testing::Test {
 protected:
  static boost::json::object object_of(const std::string& body) {
    auto value = parse_body(body);
    CHECK(value.ok() && value->is_object(), "{}", body);
    return value->get_object();
  }
  // As the server does it: the body is parsed, then its prompts are read.
  Result<GenerationRequest> read(const ParseRequest& parse, const std::string& body,
                                 Caller caller = {}) const {
    const boost::json::object object = object_of(body);
    ParsedRequest parsed = TRY(parse(object, model_));
    TRY(fit_answer_form(model_, parsed.prompts, parsed.request));
    TRY(read_prompts(std::move(parsed.prompts), model_, std::move(caller), parsed.request));
    return std::move(parsed.request);
  }
  Result<GenerationRequest> chat(const std::string& body) const { return read(parse_chat, body); }
  Result<GenerationRequest> completion(const std::string& body, Caller caller = {}) const {
    return read(parse_completion, body, std::move(caller));
  }
  static std::string ignored_of(const GenerationRequest& request) {
    for (const auto& [name, value] : request.headers) {
      if (name == kIgnoredHeader) return value;
    }
    return {};
  }
  // The prompt's text, special tokens shown.
  std::string prompt_of(const Result<GenerationRequest>& request) const {
    if (!request.ok()) return "error: " + request.error().to_string();
    return bundle_.tokenizer->decode(request->prompts[0].ids, false).value();
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted", "alias"};
  const ServingModel model_{bundle_, info_, names_, 100};
};

struct BadField {
  std::string_view members;  // added to {"prompt":"a"}
  std::string_view param;
  std::string_view message;
};

// clang-format off
constexpr BadField kBadFields[] = {
    {R"("temperature":-0.1)", "temperature", "temperature is -0.1, but it must be a number from 0 to 100"},
    {R"("temperature":101)", "temperature", "temperature is 101, but it must be a number from 0 to 100"},
    {R"("temperature":"hot")", "temperature", "temperature is \"hot\", but it must be a number from 0 to 100"},
    {R"("temperature":[1])", "temperature", "temperature is a list of 1, but it must be a number from 0 to 100"},
    {R"("temperature":{"a":1})", "temperature", "temperature is an object, but it must be a number from 0 to 100"},
    {R"("temperature":true)", "temperature", "temperature is true, but it must be a number from 0 to 100"},
    {R"("top_p":0)", "top_p", "top_p is 0, but it must be a number above 0 and at most 1"},
    {R"("top_p":1.1)", "top_p", "top_p is 1.1, but it must be a number from 0 to 1"},
    {R"("min_p":2)", "min_p", "min_p is 2, but it must be a number from 0 to 1"},
    {R"("top_k":-2)", "top_k", "top_k is -2, but it must be a whole number from -1 to 2147483647"},
    {R"("top_k":1.5)", "top_k", "top_k is 1.5, but it must be a whole number from -1 to 2147483647"},
    {R"("top_k":9223372036854775807)", "top_k", "top_k is 9223372036854775807, but it must be a whole number from -1 to 2147483647"},
    {R"("top_k":18446744073709551615)", "top_k", "top_k is 18446744073709551615, but it must be a whole number from -1 to 2147483647"},
    {R"("repetition_penalty":0)", "repetition_penalty", "repetition_penalty is 0, but it must be a number from 0.01 to 100"},
    {R"("presence_penalty":2.5)", "presence_penalty", "presence_penalty is 2.5, but it must be a number from -2 to 2"},
    {R"("frequency_penalty":-3)", "frequency_penalty", "frequency_penalty is -3, but it must be a number from -2 to 2"},
    {R"("seed":1.5)", "seed", "seed is 1.5, but it must be a whole number"},
    {R"("seed":"x")", "seed", "seed is \"x\", but it must be a whole number"},
    {R"("max_tokens":-1)", "max_tokens", "max_tokens is -1, but it must be a whole number from 0 to 2147483647"},
    {R"("max_tokens":0)", "max_tokens", "max_tokens is 0, but it must be at least 1, unless echo is true"},
    {R"("max_tokens":2147483648)", "max_tokens", "max_tokens is 2147483648, but it must be a whole number from 0 to 2147483647"},
    {R"("max_completion_tokens":"7")", "max_completion_tokens", "max_completion_tokens is \"7\", but it must be a whole number from 0 to 2147483647"},
    {R"("max_tokens":4,"min_tokens":5)", "min_tokens", "min_tokens is 5, but it must be a whole number from 0 to 4"},
    {R"("ignore_eos":1)", "ignore_eos", "ignore_eos is 1, but it must be true or false"},
    {R"("stream":"yes")", "stream", "stream is \"yes\", but it must be true or false"},
    {R"("stream_options":true)", "stream_options", "stream_options is true, but it must be an object"},
    {R"("stream_options":{"include_usage":1})", "stream_options.include_usage", "stream_options.include_usage is 1, but it must be true or false"},
    {R"("n":0)", "n", "n is 0, but it must be a whole number from 1 to 16"},
    {R"("n":17)", "n", "n is 17, but it must be a whole number from 1 to 16"},
    {R"("n":3,"best_of":2)", "best_of", "best_of is 2, but it must be at least n, 3"},
    {R"("best_of":17)", "best_of", "best_of is 17, but it must be a whole number from 1 to 16"},
    {R"("n":2,"best_of":3,"stream":true)", "best_of", "best_of is 3, but it must be equal to n, 2, in a stream"},
    {R"("logprobs":21)", "logprobs", "logprobs is 21, but it must be a whole number from 0 to 20"},
    {R"("logprobs":true)", "logprobs", "logprobs is true, but it must be a whole number from 0 to 20"},
    {R"("stop":"")", "stop", "stop is \"\", but it must be strings of 1 to 256 bytes"},
    {R"("stop":5)", "stop", "stop is 5, but it must be strings of 1 to 256 bytes"},
    {R"("stop":["a",null])", "stop", "stop is null, but it must be strings of 1 to 256 bytes"},
    {R"("stop_token_ids":[258])", "stop_token_ids", "stop_token_ids holds 258, but token ids are whole numbers from 0 to 257"},
    {R"("stop_token_ids":7)", "stop_token_ids", "stop_token_ids is 7, but it must be a list"},
    {R"("logit_bias":{"258":1})", "logit_bias", "logit_bias has the key \"258\", but its keys must be token ids from 0 to 257"},
    {R"("logit_bias":{"-1":1})", "logit_bias", "logit_bias has the key \"-1\", but its keys must be token ids from 0 to 257"},
    {R"("logit_bias":{"5":101})", "logit_bias.5", "logit_bias.5 is 101, but it must be a number from -100 to 100"},
    {R"("logit_bias":{"5":"x"})", "logit_bias.5", "logit_bias.5 is \"x\", but it must be a number from -100 to 100"},
    {R"("logit_bias":[1])", "logit_bias", "logit_bias is a list of 1, but it must be an object"},
    {R"("skip_special_tokens":"no")", "skip_special_tokens", "skip_special_tokens is \"no\", but it must be true or false"},
    {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format.json_schema.schema", "response_format.json_schema.schema is missing, but it must be what the answer holds to"},
    {R"("response_format":{})", "response_format.type", "response_format.type is missing, but it must be 'text', 'json_object', 'json_schema', 'regex', 'grammar' or 'structural_tag'"},
    {R"("guided_json":{},"regex":"a")", "regex", "regex is given beside guided_json, but it must be the only one that says what form the answer has"},
    {R"("guided_choice":"a")", "guided_choice", "guided_choice is \"a\", but it must be a list"},
    {R"("suffix":"end")", "suffix", "suffix is given, but this model was not trained to fill in text before one (leave it out, or use a model for code that has fill-in-the-middle tokens)"},
    {R"("use_beam_search":1)", "use_beam_search", "use_beam_search is 1, but it must be true or false"},
    {R"("use_beam_search":true,"stream":true)", "stream", "stream is true, but it must be false with use_beam_search, whose answers come at its end"},
    {R"("use_beam_search":true,"stop":"a")", "stop", "stop is given, but it must be left out with use_beam_search, which ends at stop_token_ids only"},
    {R"("use_beam_search":true,"early_stopping":"always")", "early_stopping", "early_stopping is \"always\", but it must be true, false or \"never\""},
    {R"("use_beam_search":true,"length_penalty":11)", "length_penalty", "length_penalty is 11, but it must be a number from -10 to 10"},
    {R"("length_penalty":0.5)", "length_penalty", "length_penalty is 0.5, but it must be left out unless use_beam_search is true"},
    {R"("early_stopping":true)", "early_stopping", "early_stopping is true, but it must be left out unless use_beam_search is true"},
    {R"("num_beams":2)", "num_beams", "num_beams is 2, which is not supported by this server (use use_beam_search with n)"},
    {R"("echo":"x")", "echo", "echo is \"x\", but it must be true or false"},
    {R"("model":7)", "model", "model is 7, but it must be a string"},
    {R"("model":"gone")", "model", "the model \"gone\" does not exist here, this server has 'scripted'"},
};

struct BadPrompt {
  std::string_view prompt;
  std::string_view message;
};

constexpr std::string_view kForms = "a string, a list of strings, a list of token ids or a list of such lists";

const BadPrompt kBadPrompts[] = {
    {"null", "prompt is missing, but it must be {}"},
    {"7", "prompt is 7, but it must be {}"},
    {"{}", "prompt is an object, but it must be {}"},
    {"[]", "prompt is an empty list, but it must be {}"},
    {"[[]]", "prompt is empty, but it must be at least one token"},
    {R"(["a",1])", "prompt is a list that holds 1, but it must be {}"},
    {R"([[1],"a"])", "prompt is a list that holds \"a\", but it must be {}"},
    {"[true]", "prompt is a list that holds true, but it must be {}"},
    {"[1,258]", "prompt holds 258, but token ids are whole numbers from 0 to 257"},
    {"[1,-1]", "prompt holds -1, but token ids are whole numbers from 0 to 257"},
    {"[1,2.5]", "prompt holds 2.5, but token ids are whole numbers from 0 to 257"},
    {"[1,1e300]", "prompt holds 1e+300, but token ids are whole numbers from 0 to 257"},
    {R"([1,"a"])", "prompt holds \"a\", but token ids are whole numbers from 0 to 257"},
    {"[[[1]]]", "prompt holds a list of 1, but token ids are whole numbers from 0 to 257"},
};

struct BadMessages {
  std::string_view messages;
  std::string_view message;
};

constexpr BadMessages kBadMessages[] = {
    {"null", "messages is missing, but it must be a list of at least one message"},
    {"[]", "messages is empty, but it must be a list of at least one message"},
    {R"("hi")", "messages is \"hi\", but it must be a list"},
    {"[1]", "messages[0] is 1, but it must be an object"},
    {"[{}]", "messages[0].role is missing, but it must be system, developer, user, assistant or tool"},
    {R"([{"role":"robot","content":"x"}])", "messages[0].role is \"robot\", but it must be system, developer, user, assistant or tool"},
    {R"([{"role":7,"content":"x"}])", "messages[0].role is 7, but it must be system, developer, user, assistant or tool"},
    {R"([{"role":"user"}])", "messages[0].content is missing, but it must be a string or a list of text parts"},
    {R"([{"role":"user","content":5}])", "messages[0].content is 5, but it must be a string or a list of text parts"},
    {R"([{"role":"user","content":[5]}])", "messages[0].content[0] is 5, but it must be an object or a string"},
    {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0] is without a type, but it must be a part of type 'text'"},
    {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text is missing, but it must be a string"},
    {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])", "messages[0].content[0] is of type \"image_url\", but it must be of type 'text': this model reads text only"},
    {R"([{"role":"user","content":[{"type":"refusal","refusal":"x"}]}])", "messages[0].content[0] is of type \"refusal\", but it must be of type 'text': this model reads text only"},
    {R"([{"role":"assistant","content":[{"type":"refusal","text":"x"}]}])", "messages[0].content[0].refusal is missing, but it must be a string"},
    {R"([{"role":"assistant","content":[{"type":"refusal","refusal":7}]}])", "messages[0].content[0].refusal is 7, but it must be a string"},
    {R"([{"role":"assistant","tool_calls":5}])", "messages[0].tool_calls is 5, but it must be a list"},
    {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls[0] is an object, but it must be an object with a function"},
    {R"([{"role":"user","content":"RAISE"}])", "roles must alternate"},
};

constexpr BadField kBadChatFields[] = {
    {R"("tool_choice":"required")", "tool_choice", "tool_choice is \"required\", but it must be \"auto\" or \"none\" without tools"},
    {R"("tool_choice":{"type":"function"})", "tool_choice", "tool_choice is an object, but it must be \"auto\", \"none\", \"required\" or the name of a function"},
    {R"("tools":5)", "tools", "tools is 5, but it must be a list"},
    {R"("tools":[5])", "tools[0]", "tools[0] is 5, but it must be an object"},
    {R"("max_tokens":0)", "max_tokens", "max_tokens is 0, but it must be at least 1"},
    {R"("logprobs":5)", "logprobs", "logprobs is 5, but it must be true or false"},
    {R"("top_logprobs":2)", "logprobs", "logprobs is false, but it must be true when top_logprobs is given"},
    {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "top_logprobs is 21, but it must be a whole number from 0 to 20"},
    {R"("chat_template_kwargs":5)", "chat_template_kwargs", "chat_template_kwargs is 5, but it must be an object"},
    {R"("continue_final_message":true,"add_generation_prompt":true)", "add_generation_prompt", "add_generation_prompt is true, but it must be false when continue_final_message is true"},
    {R"("reasoning_effort":3)", "reasoning_effort", "reasoning_effort is 3, but it must be a string"},
};
// clang-format on

TEST_F(ParseTest, EachBadFieldIsNamedWithFoundAndNeeded) {
  for (const BadField& bad : kBadFields) {
    const auto request = completion(fmt::format(R"({{"prompt":"a",{}}})", bad.members));
    ASSERT_FALSE(request.ok()) << bad.members;
    EXPECT_EQ(request.error().to_string(), bad.message) << bad.members;
    EXPECT_EQ(request.error().param, bad.param) << bad.members;
  }
}

TEST_F(ParseTest, EachBadPromptIsNamed) {
  for (const BadPrompt& bad : kBadPrompts) {
    const auto request = completion(fmt::format(R"({{"prompt":{}}})", bad.prompt));
    ASSERT_FALSE(request.ok()) << bad.prompt;
    EXPECT_EQ(request.error().message, fmt::format(fmt::runtime(bad.message), kForms));
    EXPECT_EQ(request.error().param, "prompt");
  }
}

TEST_F(ParseTest, EachBadMessageIsNamed) {
  for (const BadMessages& bad : kBadMessages) {
    const auto request = chat(fmt::format(R"({{"messages":{}}})", bad.messages));
    ASSERT_FALSE(request.ok()) << bad.messages;
    EXPECT_EQ(request.error().message, bad.message) << bad.messages;
    EXPECT_TRUE(request.error().param.starts_with("messages")) << bad.messages;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  }
  for (const BadField& bad : kBadChatFields) {
    const auto request =
        chat(fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}],{}}})", bad.members));
    ASSERT_FALSE(request.ok()) << bad.members;
    EXPECT_EQ(request.error().to_string(), bad.message) << bad.members;
    EXPECT_EQ(request.error().param, bad.param) << bad.members;
  }
}

TEST_F(ParseTest, APromptThatDoesNotFitSaysBothNumbers) {
  const auto request = completion(fmt::format(R"({{"prompt":"{}"}})", std::string(120, 'x')));
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().to_string(),
            "the prompt is too long: it has at least 101 tokens, but this model's maximum context "
            "length is 100 tokens, "
            "prompt and answer together (shorten the prompt)");
  EXPECT_EQ(request.error().param, "prompt");
  // 99 tokens and BOS fill the context: room for scoring, none for an answer.
  const std::string full(99, 'x');
  EXPECT_FALSE(completion(fmt::format(R"({{"prompt":"{}"}})", full)).ok());
  EXPECT_TRUE(
      completion(fmt::format(R"({{"prompt":"{}","echo":true,"max_tokens":0}})", full)).ok());
  EXPECT_TRUE(completion(fmt::format(R"({{"prompt":"{}"}})", full.substr(1))).ok());
}

TEST_F(ParseTest, LengthsAreClampedToTheContext) {
  const auto request = completion(R"({"prompt":"abc","max_tokens":5000,"min_tokens":99})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Request made = request->engine_request(0, 100);
  EXPECT_EQ(made.max_tokens, 96);
  EXPECT_EQ(made.min_tokens, 96);
  const auto whole = chat(R"({"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(whole->engine_request(0, 100).max_tokens,
            100 - static_cast<int>(whole->prompts[0].ids.size()));
  EXPECT_EQ(completion(R"({"prompt":"abc"})")->engine_request(0, 100).max_tokens, 16);
}

TEST_F(ParseTest, APredictedAnswerIsReadInBothForms) {
  const auto asked = [&](const std::string& prediction) {
    return chat(R"({"messages":[{"role":"user","content":"a"}],"prediction":)" + prediction + "}");
  };
  const auto text = asked(R"({"type":"content","content":"bcd"})");
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(text->engine_request(0, 100).predicted_ids, (std::vector<int32_t>{'b', 'c', 'd'}));
  const auto parts = asked(
      R"({"type":"content","content":[{"type":"text","text":"bc"},{"type":"text","text":"d"}]})");
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  EXPECT_EQ(parts->prototype.predicted_ids, text->prototype.predicted_ids);
  EXPECT_TRUE(asked("null")->prototype.predicted_ids.empty());
  EXPECT_EQ(asked("{}").error().message, "prediction.type is missing, but it must be \"content\"");
  EXPECT_EQ(asked(R"({"type":"content"})").error().message,
            "prediction.content is missing, but it must be a text or a list");
  EXPECT_EQ(asked(R"({"type":"content","content":["x"]})").error().message,
            "prediction.content is \"x\", but it must be parts of type \"text\"");
  const auto longer = asked(R"({"type":"content","content":")" + std::string(101, 'x') + "\"}");
  EXPECT_EQ(longer.error().param, "prediction");
}

TEST_F(ParseTest, ReadsEverySamplingField) {
  const auto request = completion(
      R"({"prompt":"a","temperature":0.5,"top_p":0.9,"top_k":40.0,"min_p":0.1,)"
      R"("repetition_penalty":1.1,"presence_penalty":0.5,"frequency_penalty":-0.5,"seed":-3,)"
      R"("logit_bias":{"5":-100,"6":2.5},"stop":["x","yy"],"stop_token_ids":[9],"min_tokens":2,)"
      R"("ignore_eos":true,"n":2,"include_stop_str_in_output":true,"skip_special_tokens":false})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const SamplingParams& sampling = request->prototype.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(sampling.presence_penalty, 0.5f);
  EXPECT_EQ(sampling.frequency_penalty, -0.5f);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.0f}, {6, 2.5f}}));
  EXPECT_EQ(request->stop, (std::vector<std::string>{"x", "yy"}));
  EXPECT_EQ(request->prototype.stop_ids, std::vector<int32_t>{9});
  EXPECT_EQ(request->prototype.min_tokens, 2);
  EXPECT_TRUE(request->prototype.ignore_eos);
  EXPECT_EQ(request->num_choices, 2);
  EXPECT_TRUE(request->include_stop);
  EXPECT_FALSE(request->skip_special);
  // Each answer draws by its index: no answer of one seed is the first of the next.
  for (const uint32_t i : {0u, 1u}) {
    EXPECT_EQ(request->engine_request(i, 100).sampling.seed, static_cast<uint64_t>(-3));
    EXPECT_EQ(request->engine_request(i, 100).sampling.choice_idx, i);
  }
}

TEST_F(ParseTest, ReadsBeamSearches) {
  const auto plain = completion(R"({"prompt":"a","use_beam_search":true,"n":3})");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_TRUE(plain->is_search());
  EXPECT_EQ(plain->prototype.beams.width, 3);
  EXPECT_EQ(plain->prototype.beams.num_returned, 3);
  EXPECT_EQ(plain->prototype.beams.length_penalty, 1);
  EXPECT_EQ(plain->prototype.beams.early_stopping, EarlyStopping::kNo);
  EXPECT_EQ(plain->num_choices, 3);
  const auto chat_one =
      chat(R"({"messages":[{"role":"user","content":"a"}],"use_beam_search":true,"n":2,)"
           R"("best_of":5,"length_penalty":-0.5,"early_stopping":"never","temperature":0.7})");
  ASSERT_TRUE(chat_one.ok()) << chat_one.error().message;
  EXPECT_EQ(chat_one->prototype.beams.width, 5);
  EXPECT_EQ(chat_one->prototype.beams.num_returned, 2);
  EXPECT_EQ(chat_one->num_choices, 2);
  EXPECT_EQ(chat_one->num_best, 0);
  EXPECT_EQ(chat_one->prototype.beams.length_penalty, -0.5f);
  EXPECT_EQ(chat_one->prototype.beams.early_stopping, EarlyStopping::kNever);
  const auto off = completion(
      R"({"prompt":"a","use_beam_search":false,"length_penalty":1.0,"early_stopping":false})");
  ASSERT_TRUE(off.ok()) << off.error().message;
  EXPECT_FALSE(off->is_search());
}

// More are made than are returned, and told their log-probs.
TEST_F(ParseTest, ReadsTheBestOfSeveral) {
  const auto request = completion(R"({"prompt":"a","n":2,"best_of":5})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->num_choices, 5);
  EXPECT_EQ(request->num_best, 2);
  EXPECT_EQ(request->engine_request(4, 100).num_logprobs, 0);
  EXPECT_FALSE(request->prototype.num_logprobs.has_value());
  const auto equal = completion(R"({"prompt":"a","n":2,"best_of":2,"stream":true})");
  ASSERT_TRUE(equal.ok()) << equal.error().message;
  EXPECT_EQ(equal->num_best, 0);
  EXPECT_FALSE(equal->engine_request(0, 100).num_logprobs.has_value());
}

TEST_F(ParseTest, TakesWhatLoadGeneratorsAndFrameworksSend) {
  EXPECT_TRUE(
      completion(R"({"model":"alias","prompt":"a","stop":null,"logprobs":null,"n":null,)"
                 R"("ignore_eos":true,"max_tokens":4,"stream":true,"repetition_penalty":1.0,)"
                 R"("stream_options":{"include_usage":true,"continuous_usage_stats":true}})")
          .ok());
  EXPECT_TRUE(
      chat(R"({"messages":[{"role":"user","content":"a"}],"user":"u","metadata":{},)"
           R"("store":false,"parallel_tool_calls":true,"response_format":{"type":"text"},)"
           R"("service_tier":"auto","x_unknown":[1,2,{"a":null}],"tools":[],"suffix":null})")
          .ok());
  EXPECT_NE(completion(R"({"prompt":"a"})")->prototype.sampling.seed,
            completion(R"({"prompt":"a"})")->prototype.sampling.seed);
}

TEST_F(ParseTest, DefaultsComeFromTheModel) {
  bundle_.sampling.temperature = 0.6f;
  bundle_.sampling.top_k = 20;
  const auto request = completion(R"({"prompt":"a"})");
  EXPECT_EQ(request->prototype.sampling.temperature, 0.6f);
  EXPECT_EQ(request->prototype.sampling.top_k, 20);
  EXPECT_EQ(request->prototype.sampling.top_p, 0.95f);
  EXPECT_EQ(completion(R"({"prompt":"a","temperature":0})")->prototype.sampling.temperature, 0.0f);
}

TEST_F(ParseTest, AModelThatRecommendsNothingSamplesAsTheCommandLineAndThePageDo) {
  const SamplingParams sampling = completion(R"({"prompt":"a"})")->prototype.sampling;
  EXPECT_EQ(sampling.temperature, 0.7f);
  EXPECT_EQ(sampling.top_p, 0.95f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.0f);
  EXPECT_EQ(sampling.repetition_penalty, 1.0f);
}

TEST_F(ParseTest, MessagesBecomeThePromptOfTheTemplate) {
  const auto prompt = [&](const std::string& members) {
    return prompt_of(chat("{" + members + "}"));
  };
  EXPECT_EQ(prompt(R"("messages":[{"role":"system","content":"S"},{"role":"user","content":"U"}])"),
            "<s>[system]S\n[user]U\n[assistant]");
  EXPECT_EQ(prompt(R"("messages":[{"role":"developer","content":"D"}])"),
            "<s>[system]D\n[assistant]");
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},"b",)"
                   R"({"type":"thinking","thinking":"t"},{"type":"text","text":"c"}]}])"),
            "<s>[user]a\nb\nc\n[assistant]");
  EXPECT_EQ(prompt(R"("messages":[{"role":"assistant","content":[{"type":"text","text":"a"},)"
                   R"({"type":"refusal","refusal":"no"}]},{"role":"user","content":"U"}])"),
            "<s>[assistant]a\nno\n[user]U\n[assistant]");
  EXPECT_EQ(prompt(R"("messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1",)"
                   R"("type":"function","function":{"name":"f","arguments":"{}"}}]},)"
                   R"({"role":"tool","tool_call_id":"1","content":"42"}])"),
            "<s>[assistant][calls]\n[tool]42\n[assistant]");
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"a"}],"tools":[{"type":"function",)"
                   R"("function":{"name":"f"}}])"),
            "<s>[1 tools][user]a\n[assistant]");
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"a"}],"tools":[{"type":"function",)"
                   R"("function":{"name":"f"}}],"tool_choice":"none")"),
            "<s>[user]a\n[assistant]");
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"a"}],"add_generation_prompt":false)"),
            "<s>[user]a\n");
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"a"}],"continue_final_message":true)"),
            "<s>[user]a\n");
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"a"}],"reasoning_effort":"low")"),
            "<s>[effort low][user]a\n[assistant]");
}

TEST_F(ParseTest, APromptHasExactlyOneBos) {
  EXPECT_EQ(prompt_of(completion(R"({"prompt":"a"})")), "<s>a");
  EXPECT_EQ(prompt_of(completion(R"({"prompt":"<s>a"})")), "<s>a");
  EXPECT_EQ(prompt_of(completion(R"({"prompt":"a","add_special_tokens":false})")), "a");
  EXPECT_EQ(prompt_of(completion(R"({"prompt":[97]})")), "a");
  EXPECT_EQ(prompt_of(completion(R"({"prompt":""})")), "<s>");
  EXPECT_FALSE(completion(R"({"prompt":"","add_special_tokens":false})").ok());
}

TEST_F(ParseTest, NullContentIsEmpty) {
  for (const char* role : {"user", "system", "assistant", "tool"}) {
    EXPECT_EQ(
        prompt_of(chat(fmt::format(R"({{"messages":[{{"role":"{}","content":null}}]}})", role))),
        fmt::format("<s>[{}]\n[assistant]", role));
  }
}

TEST_F(ParseTest, WhatTheTemplateHasNoPlaceForIsRefused) {
  // Renders the first message's content, whatever else there is.
  class OneMessage : public ChatTemplate {
   public:
    Result<std::string> render(std::string_view, std::optional<std::string_view>) const override {
      return std::string("prompt");
    }
    const std::string& source() const override { return source_; }

   private:
    const std::string source_ = "{# tools, documents #}";
  };
  bundle_.chat_template = std::make_unique<OneMessage>();
  const auto message = [&](const std::string& members) {
    const auto request = chat(R"({"messages":[{"role":"user","content":"a"}],)" + members + "}");
    return request.ok() ? "x-headrace-ignored: " + ignored_of(*request)
                        : request.error().to_string();
  };
  const std::string hint = " (leave it out, or use a model that was made for it)";
  EXPECT_EQ(message(R"("tools":[{"type":"function","function":{"name":"f"}}])"),
            "this model's chat template has no place for tools" + hint);
  EXPECT_EQ(message(R"("documents":[{"text":"x"}])"),
            "this model's chat template has no place for documents" + hint);
  EXPECT_EQ(message(R"("tools":[],"documents":[])"), "x-headrace-ignored: ");
  EXPECT_EQ(message(R"("reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false})"),
            "x-headrace-ignored: chat_template_kwargs.enable_thinking, reasoning_effort");
  const auto calls = chat(
      R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
      R"("function":{"name":"f","arguments":"{}"}}]}]})");
  ASSERT_FALSE(calls.ok());
  EXPECT_EQ(calls.error().param, "messages[0].tool_calls");
}

TEST_F(ParseTest, PromptsOfOneListShareABound) {
  // 800 prompts of 90 tokens: each fits, all together are more than 65,536.
  std::string list;
  for (int i = 0; i < 800; ++i)
    list += fmt::format("{}\"{}\"", i > 0 ? "," : "", std::string(89, 'x'));
  const auto request = completion(fmt::format(R"({{"prompt":[{}]}})", list));
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(
      request.error().to_string(),
      "prompt is a list that has 65610 tokens after 729 of its prompts, but it must be one of "
      "at most 65536 tokens in all (send the prompts in several requests)");
  EXPECT_FALSE(completion(R"({"prompt":[[1],[2]],"n":16,"max_tokens":0})").ok());
}

TEST_F(ParseTest, WorkEndsWhenTheCallerLeft) {
  Caller caller;
  caller.left = [] { return true; };
  const auto request = completion(R"({"prompt":"a long text"})", std::move(caller));
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().code, ErrorCode::kUnavailable);
}

TEST_F(ParseTest, ScoresAreLeasedBeforeAnyWork) {
  ByteBudget budget(1 << 20);
  const auto ask = [&](const std::string& members) {
    Caller caller;
    caller.memory = budget.lease();
    return completion(R"({"prompt":")" + std::string(80, 'x') + "\"," + members + "}",
                      std::move(caller));
  };
  const auto scored = ask(R"("echo":true,"logprobs":20,"max_tokens":1)");
  ASSERT_TRUE(scored.ok()) << scored.error().message;
  EXPECT_GE(budget.used(), 81 * score_bytes(20));
  // What can never fit is the request's fault; what does not fit now is not.
  const auto never = ask(R"("echo":true,"logprobs":20,"max_tokens":9,"n":16)");
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      never.error().to_string(),
      "logprobs is for up to 3 MiB of scores, but it must be for at most 1 MiB, all that this "
      "server lends (ask for fewer prompts, choices, tokens or alternatives at once)");
  const auto later = ask(R"("echo":true,"logprobs":20,"max_tokens":1,"n":7)");
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(ask(R"("echo":true,"logprobs":1,"max_tokens":1)").ok(), true);
}

TEST_F(ParseTest, CacheDomainsAreOfKeyAndSalt) {
  const auto domain = [&](bool has_key, uint64_t client, const std::string& members) {
    Caller caller;
    caller.client = client;
    caller.has_key = has_key;
    const auto request = completion(R"({"prompt":"a")" + members + "}", std::move(caller));
    return request.ok() ? request->prototype.cache_domain : "error: " + request.error().message;
  };
  EXPECT_EQ(domain(false, 1, ""), domain(false, 2, ""));  // addresses share
  std::set<std::string> domains = {domain(false, 1, "")};
  for (const uint64_t client : {1, 2}) {
    EXPECT_TRUE(domains.insert(domain(true, client, "")).second);
    for (const char* salt : {"a", "b", "/a"}) {
      EXPECT_TRUE(
          domains.insert(domain(true, client, fmt::format(R"(,"cache_salt":"{}")", salt))).second);
    }
  }
  EXPECT_TRUE(domains.insert(domain(false, 1, R"(,"cache_salt":"a")")).second);
  EXPECT_EQ(domain(false, 1, R"(,"cache_salt":"")"),
            "error: cache_salt is a string of 0 bytes, but it must be a string of 1 to 256 bytes");
  EXPECT_EQ(
      domain(false, 1, fmt::format(R"(,"cache_salt":"{}")", std::string(257, 'x'))),
      "error: cache_salt is a string of 257 bytes, but it must be a string of 1 to 256 bytes");
  EXPECT_EQ(domain(false, 1, R"(,"cache_salt":7)"),
            "error: cache_salt is 7, but it must be a string");
}

TEST_F(ParseTest, KeysOfAGroupHaveOneCacheDomain) {
  const auto domain = [&](uint64_t client, const std::string& group, const std::string& members) {
    Caller caller;
    caller.client = client;
    caller.has_key = true;
    caller.cache_group = group;
    return completion(R"({"prompt":"a")" + members + "}", std::move(caller))
        ->prototype.cache_domain;
  };
  EXPECT_EQ(domain(1, "x", ""), domain(2, "x", ""));
  const std::set<std::string> domains = {domain(1, "", ""), domain(1, "x", ""), domain(1, "y", ""),
                                         domain(1, "x", R"(,"cache_salt":"a")")};
  EXPECT_EQ(domains.size(), 4u);
}

TEST_F(ParseTest, ThePromptAloneNeedsNoWork) {
  EXPECT_TRUE(completion(R"({"prompt":"a","echo":true,"max_tokens":0})")->only_echoes());
  EXPECT_FALSE(
      completion(R"({"prompt":"a","echo":true,"max_tokens":0,"logprobs":0})")->only_echoes());
  EXPECT_FALSE(completion(R"({"prompt":"a","echo":true})")->only_echoes());
}

TEST_F(ParseTest, ABaseModelHasNoChat) {
  bundle_.chat_template.reset();
  const auto request = chat(R"({"messages":[{"role":"user","content":"a"}]})");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().to_string(),
            "this model has no chat template (use /v1/completions, or a chat-tuned model)");
}

// A model that fills in, with ids of single bytes as its marks.
class InfillTest : public ParseTest {
 protected:
  void SetUp() override { bundle_.infill = InfillMarks{1, 2, 3, false, {1, 2, 3, 4}}; }
};

TEST_F(InfillTest, ASuffixMarksThePlaceOfTheAnswer) {
  const auto request = completion(R"({"prompt":"ab","suffix":"c","stop_token_ids":[9]})");
  ASSERT_TRUE(request.ok()) << request.error().to_string();
  EXPECT_EQ(request->prompts[0].ids, (std::vector<int32_t>{test::kBos, 1, 'a', 'b', 2, 'c', 3}));
  EXPECT_EQ(request->prototype.stop_ids, (std::vector<int32_t>{9, 1, 2, 3, 4}));
  EXPECT_EQ(prompt_of(completion(R"({"prompt":"ab","suffix":""})")), "<s>ab");
  const auto several = completion(R"({"prompt":["a","b"],"suffix":"c"})");
  ASSERT_EQ(several->prompts.size(), 2u);
  EXPECT_EQ(several->prompts[1].ids, (std::vector<int32_t>{test::kBos, 1, 'b', 2, 'c', 3}));
}

TEST_F(InfillTest, SomeModelsReadTheEndFirst) {
  bundle_.infill->after_first = true;
  const auto request = completion(R"({"prompt":"ab","suffix":"c"})");
  EXPECT_EQ(request->prompts[0].ids, (std::vector<int32_t>{test::kBos, 2, 'c', 1, 'a', 'b'}));
}

TEST_F(InfillTest, ASuffixIsForTextsAlone) {
  EXPECT_EQ(completion(R"({"prompt":[65],"suffix":"c"})").error().param, "prompt");
  EXPECT_EQ(completion(R"({"prompt":[[65]],"suffix":"c"})").error().param, "prompt");
  EXPECT_EQ(completion(R"({"prompt":"a","suffix":"c","echo":true})").error().param, "echo");
  EXPECT_EQ(completion(R"({"prompt":"a","suffix":7})").error().param, "suffix");
}

}  // namespace openai_parse_test
}  // namespace headrace
