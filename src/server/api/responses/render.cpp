// Answers of the Responses API: each part of the answer is an item; a stream tells of its
// beginning, growth and end by events with names.

#include <algorithm>

#include "server/api/cache_miss.h"
#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/responses/responses.h"
#include "server/api/token_scores.h"
#include "server/api/wall_clock.h"

namespace headrace {
namespace {

// What an item is, and what its events are called.
struct ItemRow {
  std::string_view type, id_prefix;
  std::string_view part_type;  // of its only content; empty: the text is a member of the item
  std::string_view text_member;
  std::string_view delta_event, done_event;
};

constexpr ItemRow kText{"message",
                        "msg",
                        "output_text",
                        "text",
                        "response.output_text.delta",
                        "response.output_text.done"};
constexpr ItemRow kRefusal{
    "message", "msg", "refusal", "refusal", "response.refusal.delta", "response.refusal.done"};
constexpr ItemRow kReasoning{"reasoning",
                             "rs",
                             "reasoning_text",
                             "text",
                             "response.reasoning_text.delta",
                             "response.reasoning_text.done"};
constexpr ItemRow kFunctionCall{"function_call",
                                "fc",
                                "",
                                "arguments",
                                "response.function_call_arguments.delta",
                                "response.function_call_arguments.done"};
constexpr ItemRow kCustomCall{"custom_tool_call",
                              "ctc",
                              "",
                              "input",
                              "response.custom_tool_call_input.delta",
                              "response.custom_tool_call_input.done"};

struct Item {
  const ItemRow* row = nullptr;
  size_t idx = 0;
  std::string id;
  std::string text;      // of its content, or of the call's arguments
  std::string logprobs;  // members of a list, JSON; of kText alone
  int call_idx = 0;
  std::string call_id, name;  // of calls
};

// To a list that is written without its brackets.
void add_members(std::string& list, std::string_view members) {
  if (!list.empty() && !members.empty()) list += ',';
  list += members;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Bytes of an escape that is cut: two halves of one character, but for the last digit.
constexpr size_t kMaxCutEscape = 11;

// The text of a custom tool in its function's arguments.
std::optional<std::string> input_in(std::string_view arguments) {
  const auto parsed = parse_body(arguments);
  const boost::json::value* input = parsed.ok() ? json_member(&*parsed, "input") : nullptr;
  if (input == nullptr || !input->is_string()) return std::nullopt;
  return std::string(text_view(input->get_string()));
}

// Of arguments that end within their text, or behind it: as much as there is.
std::optional<std::string> input_so_far(std::string_view arguments) {
  for (size_t num_cut = 0; num_cut <= std::min(kMaxCutEscape, arguments.size()); ++num_cut) {
    const std::string_view kept = arguments.substr(0, arguments.size() - num_cut);
    auto input = input_in(std::string(kept) + "\"}");
    if (input) return input;
  }
  return std::nullopt;
}

// What a custom tool is given. Arguments that have no such text are shown as they are, unless the
// text could still have come.
std::string custom_input(const std::string& arguments, bool is_cut) {
  if (auto input = input_in(arguments)) return *input;
  if (auto input = input_so_far(arguments)) return *input;
  return is_cut ? std::string() : arguments;
}

std::string_view error_code(const Error& error) {
  const int status = status_of(error.code);
  if (status == 429) return "rate_limit_exceeded";
  return status < 500 ? "invalid_prompt" : "server_error";
}

class ResponseRenderer : public AnswerRenderer {
 public:
  ResponseRenderer(const ServingModel& model, ResponseEcho echo)
      : echo_(std::move(echo)),
        scores_(*model.text.tokenizer, echo_.num_top.value_or(0)),
        created_(unix_seconds()) {}

  const Dialect& dialect() const override { return kResponses; }
  const std::string& id() const override { return echo_.id; }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    if (token.may_be_text) scores_.add(token, scores);
  }

  std::string begin_stream(const Usage& prompts) override;
  std::string chunk(const ChoiceDelta& delta, const Usage& so_far) override;
  std::string end_stream(const AnswerEnd& end) override;
  std::string stream_error(const Error& error) override;

  bool add_piece(const ChoiceDelta& piece) override { return take(piece), true; }
  void begin_whole(JsonWriter& /*json*/) override {}
  void add_choice(const ChoiceDelta& choice, JsonWriter& /*json*/) override { take(choice); }
  void end_whole(const AnswerEnd& end, JsonWriter& json) override;

 private:
  // Items, from the parts of the answer.
  void take(const ChoiceDelta& delta);
  void take_part(const OutputPart& part);
  void end_items();
  const ItemRow& row_of(const OutputPart& part) const;
  void open_item(const ItemRow& row, const OutputPart& part);
  void grow_item(std::string_view text, const std::string& logprobs);
  void close_item(bool is_cut);

  // JSON.
  void write_item(JsonWriter& json, const Item& item, std::string_view status) const;
  void write_name(JsonWriter& json, const std::string& called) const;
  static void write_part(JsonWriter& json, const Item& item);
  void write_response(JsonWriter& json, std::string_view status, const Usage* usage,
                      const Error* error) const;
  static void write_usage(JsonWriter& json, const Usage& usage);

  // Events of a stream; nothing for a whole answer.
  void open_event(JsonWriter& json, std::string_view type);
  void send_event(JsonWriter& json, std::string_view type);
  void send_item_event(std::string_view type, std::string_view status);
  void send_part_event(std::string_view type);
  void send_text_event(std::string_view type, std::string_view member, std::string_view text,
                       const std::string& logprobs);
  void send_response_event(std::string_view type, std::string_view status, const Usage* usage,
                           const Error* error);

  std::string_view end_status() const {
    return finish_ == Finish::Kind::kLength ? "incomplete" : "completed";
  }
  // Something but the model has ended the answer.
  bool is_cut_off() const {
    return finish_ == Finish::Kind::kLength || finish_ == Finish::Kind::kStopString ||
           finish_ == Finish::Kind::kRepetition;
  }
  void keep(std::string body) const;

  const ResponseEcho echo_;
  const ScoreWriter scores_;
  const int64_t created_;
  bool streams_ = false;
  int64_t num_events_ = 0;
  std::string events_;  // to be sent
  std::optional<Item> open_;
  std::string blank_;     // of a message that has nothing else yet
  std::string logprobs_;  // of tokens whose text is still to come, members of a list
  std::string outputs_;   // the items that are complete: members of a list
  size_t num_items_ = 0;
  Finish::Kind finish_ = Finish::Kind::kNone;
};

const ItemRow& ResponseRenderer::row_of(const OutputPart& part) const {
  switch (part.kind) {
    case OutputPart::Kind::kReasoning:
      return kReasoning;
    case OutputPart::Kind::kRefusal:
      return kRefusal;
    case OutputPart::Kind::kToolCall:
      break;
    default:
      return kText;
  }
  const bool goes_on = part.call_name.empty() && open_ && open_->call_idx == part.call_idx;
  if (goes_on && open_->row == &kCustomCall) return kCustomCall;
  const auto& custom = echo_.custom_tools;
  const bool is_custom = std::find(custom.begin(), custom.end(), part.call_name) != custom.end();
  return is_custom ? kCustomCall : kFunctionCall;
}

void ResponseRenderer::take(const ChoiceDelta& delta) {
  add_members(logprobs_, delta.scores.lists[0].str());
  for (const OutputPart& part : delta.parts) take_part(part);
  // What came was no text, and none waits: its tokens have no place.
  if (!delta.parts.empty() && blank_.empty()) logprobs_.clear();
  finish_ = delta.finish.kind;
  if (finish_ != Finish::Kind::kNone) end_items();
}

// Every answer has an item. Tokens that a stop string has cut off belong to the text before it.
void ResponseRenderer::end_items() {
  if (!open_ && num_items_ == 0) open_item(kText, {});
  if (!open_) return;
  if (open_->row == &kText) grow_item(std::exchange(blank_, {}), std::exchange(logprobs_, {}));
  close_item(finish_ == Finish::Kind::kLength);
}

// Blanks between reasoning and calls make no message of their own.
void ResponseRenderer::take_part(const OutputPart& part) {
  const ItemRow& row = row_of(part);
  const bool goes_on = open_ && open_->row == &row && open_->call_idx == part.call_idx;
  if (!goes_on && &row == &kText && is_blank(part.text)) {
    blank_ += part.text;
    return;
  }
  const std::string blank = std::exchange(blank_, {});
  if (!goes_on) {
    if (open_) close_item(false);
    open_item(row, part);
  }
  if (&row == &kText) {
    grow_item(blank + part.text, std::exchange(logprobs_, {}));
  } else {
    grow_item(part.text, {});
  }
}

void ResponseRenderer::open_item(const ItemRow& row, const OutputPart& part) {
  open_ = Item{&row,
               num_items_,
               item_id(row.id_prefix, echo_.id, num_items_),
               {},
               {},
               part.call_idx,
               part.call_id,
               part.call_name};
  ++num_items_;
  send_item_event("response.output_item.added", "in_progress");
  if (!row.part_type.empty()) send_part_event("response.content_part.added");
}

void ResponseRenderer::grow_item(std::string_view text, const std::string& logprobs) {
  open_->text += text;
  add_members(open_->logprobs, logprobs);
  if (open_->row == &kCustomCall) return;  // its text is known at the end
  if (text.empty() && logprobs.empty()) return;
  send_text_event(open_->row->delta_event, "delta", text, logprobs);
}

void ResponseRenderer::close_item(bool is_cut) {
  const ItemRow& row = *open_->row;
  if (&row == &kCustomCall) {
    open_->text = custom_input(open_->text, is_cut_off());
    send_text_event(row.delta_event, "delta", open_->text, {});
  }
  send_text_event(row.done_event, row.text_member, open_->text, open_->logprobs);
  if (!row.part_type.empty()) send_part_event("response.content_part.done");
  const std::string_view status = is_cut ? "incomplete" : "completed";
  send_item_event("response.output_item.done", status);
  JsonWriter json;
  write_item(json, *open_, status);
  add_members(outputs_, json.str());
  open_.reset();
}

void ResponseRenderer::write_part(JsonWriter& json, const Item& item) {
  json.open_object().text("type", item.row->part_type).text(item.row->text_member, item.text);
  if (item.row == &kText) {
    json.key("annotations").open_array().close_array().key("logprobs").open_array();
    if (!item.logprobs.empty()) json.raw(item.logprobs);
    json.close_array();
  }
  json.close_object();
}

// As the client calls the tool.
void ResponseRenderer::write_name(JsonWriter& json, const std::string& called) const {
  for (const ResponseEcho::Placed& tool : echo_.placed_tools) {
    if (tool.called != called) continue;
    json.text("name", tool.name).text("namespace", tool.name_space);
    return;
  }
  json.text("name", called);
}

// As it is by now; an item that has just begun has no content.
void ResponseRenderer::write_item(JsonWriter& json, const Item& item,
                                  std::string_view status) const {
  json.open_object().text("type", item.row->type).text("id", item.id).text("status", status);
  if (item.row->part_type.empty()) {
    json.text("call_id", item.call_id);
    write_name(json, item.name);
    json.text(item.row->text_member, item.text).close_object();
    return;
  }
  if (item.row == &kReasoning) {
    json.key("summary").open_array().close_array();
    if (echo_.with_reasoning_copy) {
      json.text("encrypted_content", std::string(kPlainReasoning) + item.text);
    }
  } else {
    json.text("role", "assistant");
  }
  json.key("content").open_array();
  if (status != "in_progress") write_part(json, item);
  json.close_array().close_object();
}

void ResponseRenderer::write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").open_object().integer("input_tokens", usage.prompt_tokens);
  json.key("input_tokens_details").open_object();
  json.integer("cached_tokens", usage.cached_tokens);
  write_cache_miss(json, usage.miss);
  json.close_object();
  json.integer("output_tokens", usage.output_tokens);
  json.key("output_tokens_details").open_object();
  json.integer("reasoning_tokens", usage.reasoning_tokens).close_object();
  json.integer("total_tokens", int64_t{usage.prompt_tokens} + usage.output_tokens).close_object();
}

void ResponseRenderer::write_response(JsonWriter& json, std::string_view status, const Usage* usage,
                                      const Error* error) const {
  json.open_object().text("id", echo_.id).text("object", "response");
  json.integer("created_at", created_).text("status", status).boolean("background", false);
  json.key("error");
  if (error == nullptr) {
    json.null();
  } else {
    json.open_object().text("code", error_code(*error)).text("message", error->to_string());
    json.close_object();
  }
  json.key("incomplete_details");
  if (status == "incomplete") {
    json.open_object().text("reason", "max_output_tokens").close_object();
  } else {
    json.null();
  }
  json.text("model", echo_.model).key("output").open_array();
  if (!outputs_.empty()) json.raw(outputs_);
  json.close_array();
  for (const auto& [name, member] : echo_.members) json.key(name).raw(member);
  json.text("service_tier", "default");
  if (usage == nullptr) {
    json.key("usage").null();
  } else {
    write_usage(json, *usage);
  }
  json.close_object();
}

void ResponseRenderer::open_event(JsonWriter& json, std::string_view type) {
  json.open_object().text("type", type).integer("sequence_number", num_events_++);
}

void ResponseRenderer::send_event(JsonWriter& json, std::string_view type) {
  json.close_object();
  events_ += fmt::format("event: {}\n", type);
  events_ += kResponses.framing.frame(json.str());
}

void ResponseRenderer::send_item_event(std::string_view type, std::string_view status) {
  if (!streams_) return;
  JsonWriter json;
  open_event(json, type);
  json.integer("output_index", static_cast<int64_t>(open_->idx)).key("item");
  write_item(json, *open_, status);
  send_event(json, type);
}

void ResponseRenderer::send_part_event(std::string_view type) {
  if (!streams_) return;
  JsonWriter json;
  open_event(json, type);
  json.text("item_id", open_->id).integer("output_index", static_cast<int64_t>(open_->idx));
  json.integer("content_index", 0).key("part");
  write_part(json, *open_);
  send_event(json, type);
}

void ResponseRenderer::send_text_event(std::string_view type, std::string_view member,
                                       std::string_view text, const std::string& logprobs) {
  if (!streams_) return;
  JsonWriter json;
  open_event(json, type);
  json.text("item_id", open_->id).integer("output_index", static_cast<int64_t>(open_->idx));
  if (!open_->row->part_type.empty()) json.integer("content_index", 0);
  if (open_->row == &kFunctionCall && type == kFunctionCall.done_event) {
    json.text("name", open_->name);
  }
  json.text(member, text);
  if (open_->row == &kText) {
    json.key("logprobs").open_array();
    if (!logprobs.empty()) json.raw(logprobs);
    json.close_array();
  }
  send_event(json, type);
}

void ResponseRenderer::send_response_event(std::string_view type, std::string_view status,
                                           const Usage* usage, const Error* error) {
  JsonWriter json;
  open_event(json, type);
  json.key("response");
  write_response(json, status, usage, error);
  send_event(json, type);
}

std::string ResponseRenderer::begin_stream(const Usage& /*prompts*/) {
  streams_ = true;
  send_response_event("response.created", "in_progress", nullptr, nullptr);
  send_response_event("response.in_progress", "in_progress", nullptr, nullptr);
  return std::exchange(events_, {});
}

std::string ResponseRenderer::chunk(const ChoiceDelta& delta, const Usage& /*so_far*/) {
  take(delta);
  return std::exchange(events_, {});
}

std::string ResponseRenderer::end_stream(const AnswerEnd& end) {
  const std::string_view status = end_status();
  send_response_event(fmt::format("response.{}", status), status, &end.usage, nullptr);
  JsonWriter body;
  write_response(body, status, &end.usage, nullptr);
  keep(body.take());
  return std::exchange(events_, {});
}

std::string ResponseRenderer::stream_error(const Error& error) {
  JsonWriter json;
  open_event(json, "error");
  json.text("code", error_code(error)).text("message", error.to_string()).key("param");
  error.param.empty() ? json.null() : json.text(error.param);
  send_event(json, "error");
  send_response_event("response.failed", "failed", nullptr, &error);
  return std::exchange(events_, {});
}

void ResponseRenderer::end_whole(const AnswerEnd& end, JsonWriter& json) {
  JsonWriter body;
  write_response(body, end_status(), &end.usage, nullptr);
  json.raw(body.str());
  keep(body.take());
}

void ResponseRenderer::keep(std::string body) const {
  if (echo_.store == nullptr) return;
  echo_.store->put({echo_.id, echo_.owner, std::move(body), echo_.items, "[" + outputs_ + "]"});
}

}  // namespace

const Dialect kResponses{"responses", openai_error_body, kServerSentEvents};

std::unique_ptr<AnswerRenderer> make_response_renderer(const ServingModel& model,
                                                       ResponseEcho echo) {
  return std::make_unique<ResponseRenderer>(model, std::move(echo));
}

}  // namespace headrace
