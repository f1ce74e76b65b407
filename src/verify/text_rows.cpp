// Token ids and rendered prompts against recorded ones.

#include <boost/json.hpp>

#include <filesystem>

#include "checkpoint/text_file.h"
#include "text/chat_template.h"
#include "verify/verify.h"

namespace headrace {
namespace {

namespace json = boost::json;

constexpr size_t kMaxConversations = size_t{256} << 20;  // bytes of conversations.json

Result<json::value> parse_file(const ReadFile& file) {
  boost::system::error_code error;
  json::value value = json::parse(file.text, error);
  if (error) {
    return make_error(ErrorCode::kCorrupt, "'{}' is not valid JSON: {}", file.path,
                      error.message());
  }
  return value;
}

std::vector<int32_t> id_list(const json::value& value) {
  return json::value_to<std::vector<int32_t>>(value);
}

// Nothing if all three agree, else which one differs first.
Result<std::string> compare_text(const Tokenizer& tokenizer, const json::object& recorded) {
  const std::string text(recorded.at("text").as_string());
  const auto ids = TRY(tokenizer.encode(text, false));
  if (ids != id_list(recorded.at("ids"))) return std::string("ids");
  if (const json::value* special = recorded.if_contains("ids_with_special")) {
    if (TRY(tokenizer.encode(text, true)) != id_list(*special)) {
      return std::string("ids with special tokens");
    }
  }
  if (const json::value* decoded = recorded.if_contains("decoded")) {
    if (TRY(tokenizer.decode(ids, false)) != decoded->as_string()) return std::string("decoded");
  }
  return std::string();
}

std::string shorten(const std::string& text) {
  constexpr size_t kMaxShown = 60;
  const std::string quoted = json::serialize(json::value(text));
  return quoted.size() <= kMaxShown ? quoted : quoted.substr(0, kMaxShown) + "...";
}

VerifyRow tokenizer_row(const Tokenizer& tokenizer, const json::object& recorded) {
  VerifyRow row;
  row.item = shorten(std::string(recorded.at("text").as_string()));
  const Result<std::string> difference = compare_text(tokenizer, recorded);
  row.passed = difference.ok() && difference->empty();
  if (!difference.ok()) row.details = difference.error().message;
  if (difference.ok() && !difference->empty()) row.details = *difference + " differ";
  return row;
}

// Template variables of one recorded conversation.
json::object conversation_variables(const json::object& conversation) {
  json::object variables = conversation.at("options").as_object();
  variables["messages"] = conversation.at("messages");
  return variables;
}

VerifyRow template_row(const std::string& item, const ChatTemplate* chat_template,
                       const Error& create_error, const json::object& variables,
                       const json::object& expected, std::string_view now) {
  VerifyRow row;
  row.item = item;
  Result<std::string> rendered = chat_template == nullptr
                                     ? Result<std::string>(create_error)
                                     : chat_template->render(json::serialize(variables), now);
  const json::value* text = expected.if_contains("text");
  if (text != nullptr) {
    row.passed = rendered.ok() && *rendered == text->as_string();
    if (!row.passed) row.details = rendered.ok() ? "text differs" : rendered.error().message;
  } else {
    row.passed = !rendered.ok();
    row.details = rendered.ok() ? "the reference raises, this rendered" : rendered.error().message;
  }
  return row;
}

VerifyRows compare_templates(const std::string& stem, const json::object& expect,
                             const json::object& conversations) {
  const std::string source(expect.at("template").as_string());
  auto chat_template = ChatTemplate::create(source, json::serialize(expect.at("special_tokens")));
  const Error create_error = chat_template.ok() ? Error{} : chat_template.error();
  const ChatTemplate* usable = chat_template.ok() ? chat_template->get() : nullptr;
  VerifyRows rows;
  for (const auto& [name, expected] : expect.at("rendered").as_object()) {
    const json::value* conversation = conversations.if_contains(name);
    if (conversation == nullptr) continue;
    rows.push_back(template_row(stem + " / " + std::string(name), usable, create_error,
                                conversation_variables(conversation->as_object()),
                                expected.as_object(), expect.at("now").as_string()));
  }
  return rows;
}

}  // namespace

Result<VerifyRows> tokenizer_rows(const Tokenizer& tokenizer, const ReadFile& recorded) {
  const json::value expect = TRY(parse_file(recorded));
  VerifyRows rows;
  try {
    for (const json::value& entry : expect.at("cases").as_array()) {
      rows.push_back(tokenizer_row(tokenizer, entry.as_object()));
    }
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kCorrupt, "'{}' is not a file of recorded token ids: {}",
                      recorded.path, error.what());
  }
  return rows;
}

Result<VerifyRows> template_rows(const ReadFile& recorded) {
  const std::filesystem::path path = recorded.path;
  const json::value expect = TRY(parse_file(recorded));
  ReadFile beside{(path.parent_path() / "conversations.json").string(), {}};
  beside.text = TRY(read_text_file(beside.path, kMaxConversations));
  const json::value conversations = TRY(parse_file(beside));
  try {
    return compare_templates(path.stem().string(), expect.as_object(), conversations.as_object());
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kCorrupt, "'{}' is not a file of recorded prompts: {}",
                      recorded.path, error.what());
  }
}

}  // namespace headrace
