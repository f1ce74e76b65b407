// libFuzzer: bytes as the body of a request. Nothing may crash; a refusal has a message that is
// valid UTF-8 when it is rendered; what is accepted gives engine requests within the context.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/test_support.h"

namespace headrace {
namespace {

constexpr int64_t kContext = 256;

Result<GenerationRequest> read(ParseRequest parse, const boost::json::object& body,
                               const ServingModel& model) {
  ParsedRequest parsed = TRY(parse(body, model));
  TRY(read_prompts(std::move(parsed.prompts), model, {}, parsed.request));
  return std::move(parsed.request);
}

void check(const Result<GenerationRequest>& request) {
  if (!request.ok()) {
    CHECK(!request.error().message.empty());
    CHECK(is_valid_utf8(error_response(kOpenAi, request.error()).body));
    return;
  }
  for (size_t i = 0; i < request->total_choices(); ++i) {
    const Request made = request->engine_request(i, kContext);
    CHECK(!made.prompt_ids.empty());
    CHECK(made.max_tokens >= 0 && made.min_tokens <= made.max_tokens);
    CHECK(static_cast<int64_t>(made.prompt_ids.size()) + made.max_tokens <= kContext);
    for (const int32_t id : made.prompt_ids) CHECK(id >= 0 && id < test::kVocabSize);
  }
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  static const TextBundle bundle = test::make_bundle();
  static const ModelInfo info = test::make_model_info();
  static const std::vector<std::string> names = {info.name};
  static const ServingModel model{bundle, info, names, kContext};
  const auto body = parse_body({reinterpret_cast<const char*>(data), size});
  if (!body.ok()) {
    CHECK(is_valid_utf8(error_response(kOpenAi, body.error()).body));
    return 0;
  }
  CHECK(parse_body(to_text(*body)).ok());
  if (!body->is_object()) return 0;
  check(read(parse_completion, body->get_object(), model));
  check(read(parse_chat, body->get_object(), model));
  return 0;
}
