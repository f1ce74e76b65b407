// Answers of a running server, by the OpenAI dialect: ours, and any other that speaks it.

#include <boost/json.hpp>

#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "cli/answer_structure.h"
#include "cli/answers.h"
#include "cli/http_client.h"
#include "cli/terminal.h"

namespace headrace {
namespace {

namespace json = boost::json;

// The member of an object, or null: answers of other servers may hold anything.
const json::value* member(const json::value* value, std::string_view name) {
  return value == nullptr || !value->is_object() ? nullptr : value->get_object().if_contains(name);
}

const json::value* first_of(const json::value* list) {
  if (list == nullptr || !list->is_array() || list->get_array().empty()) return nullptr;
  return &list->get_array()[0];
}

std::string text_of(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// A fraction, and what 64 bits do not hold, is no number of anything here.
int64_t number_of(const json::value* value) {
  if (value == nullptr) return 0;
  boost::system::error_code error;
  const auto number = value->to_number<int64_t>(error);
  return error ? 0 : number;
}

json::value parsed(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
  return error ? json::value() : value;
}

// What a server says of why it does not answer.
Error refusal(const std::string& address, const HttpAnswer& answer) {
  const json::value body = parsed(answer.body);
  std::string reason = text_of(member(member(&body, "error"), "message"));
  if (reason.empty()) reason = text_of(member(&body, "error"));
  if (reason.empty()) reason = fmt::format("status {}", answer.status);
  Error error =
      make_error(answer.status == 404 ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
                 "{}: {}", address, reason);
  if (answer.status == 401) error.hint = "set HEADRACE_API_KEY to a key of the server";
  return error;
}

// One streamed answer: lines of server-sent events into text.
class AnswerStream {
 public:
  explicit AnswerStream(const Question& question) : question_(question) {
    answer_.times.submitted = now_us();
  }

  // False: stop.
  bool take(std::string_view piece) {
    buffer_ += piece;
    size_t begin = 0;
    for (size_t end = buffer_.find('\n'); end != std::string::npos && !done_;
         end = buffer_.find('\n', begin)) {
      take_line(std::string_view(buffer_).substr(begin, end - begin));
      begin = end + 1;
    }
    buffer_.erase(0, begin);
    return !done_;
  }

  Result<Answer> finish(bool interrupted) {
    if (!failure_.empty()) return make_error(ErrorCode::kUnavailable, "{}", failure_);
    answer_.times.finished = now_us();
    if (answer_.reason == FinishReason::kNone) answer_.reason = FinishReason::kCancelled;
    if (interrupted || gone_ || answer_.reason != FinishReason::kCancelled) {
      return std::move(answer_);
    }
    return make_error(ErrorCode::kUnavailable, "the server ended its answer without a reason");
  }

 private:
  void take_line(std::string_view line) {
    if (!line.starts_with("data:")) return;  // comments, names of events
    line.remove_prefix(5);
    while (line.starts_with(' ')) line.remove_prefix(1);
    if (line.starts_with("[DONE]")) {
      done_ = true;
      return;
    }
    const json::value event = parsed(line);
    if (const json::value* error = member(&event, "error"); error != nullptr && !error->is_null()) {
      failure_ = text_of(member(error, "message"));
      if (failure_.empty()) failure_ = "the server failed while it answered";
      done_ = true;
      return;
    }
    take_usage(member(&event, "usage"));
    take_choice(first_of(member(&event, "choices")));
  }

  void take_usage(const json::value* usage) {
    if (usage == nullptr || !usage->is_object()) return;
    answer_.usage.prompt_tokens = static_cast<int32_t>(number_of(member(usage, "prompt_tokens")));
    answer_.usage.output_tokens =
        static_cast<int32_t>(number_of(member(usage, "completion_tokens")));
  }

  void take_choice(const json::value* choice) {
    if (choice == nullptr) return;
    const json::value* delta = member(choice, "delta");
    add(text_of(delta == nullptr ? member(choice, "text") : member(delta, "content")));
    const std::string reason = text_of(member(choice, "finish_reason"));
    if (reason.empty()) return;
    answer_.reason = reason == "length" ? FinishReason::kLength : FinishReason::kStop;
  }

  void add(const std::string& text) {
    if (text.empty()) return;
    if (answer_.times.first_token == 0) answer_.times.first_token = now_us();
    answer_.text += text;
    if (question_.write(text)) return;
    gone_ = done_ = true;  // nobody reads: the connection closes, and the server cancels
  }

  const Question& question_;
  std::string buffer_;  // of a line that is not whole
  Answer answer_;
  std::string failure_;
  bool done_ = false, gone_ = false;
};

class RemoteModel final : public AnswerSource {
 public:
  RemoteModel(const Options& options, std::string address, std::string model, int64_t context)
      : options_(options),
        address_(std::move(address)),
        model_(std::move(model)),
        context_(context),
        unchanged_(request_from_options(options, {})) {}

  std::string name() const override { return fmt::format("{} at {}", model_, address_); }
  bool is_base() const override { return false; }  // it refuses messages itself
  ContextLimit context() const override { return {context_, "--context of the server"}; }
  const SamplingDefaults& sampling() const override { return sampling_; }

  // The server itself tells reasoning from the answer.
  Result<std::vector<int32_t>> encode_messages(const json::array& messages,
                                               bool /*structured*/) override {
    return tokenize({{"model", model_}, {"messages", messages}});
  }
  Result<std::vector<int32_t>> encode_text(const std::string& text) override {
    return tokenize({{"model", model_}, {"prompt", text}});
  }

  Result<Answer> answer(Question question) override {
    AnswerStream stream(question);
    HttpCall call =
        call_to(question.messages == nullptr ? "/v1/completions" : "/v1/chat/completions");
    call.body = json::serialize(body_of(question));
    call.piece = [&](std::string_view piece) { return stream.take(piece); };
    call.interrupted = question.interrupted;
    const HttpAnswer answer = TRY(call_server(call));
    const bool interrupted = question.interrupted != nullptr && *question.interrupted;
    if (!interrupted && (answer.status < 200 || answer.status > 299)) {
      return refusal(address_, answer);
    }
    return stream.finish(interrupted);
  }

 private:
  HttpCall call_to(std::string_view path) const { return call_of(options_, address_, path); }

  // A server without this route has no ids to show: then the conversation is sent as it is.
  Result<std::vector<int32_t>> tokenize(const json::object& body) const {
    HttpCall call = call_to("/tokenize");
    call.body = json::serialize(body);
    const HttpAnswer answer = TRY(call_server(call));
    if (answer.status == 404 || answer.status == 405 || answer.status == 501) {
      return std::vector<int32_t>();
    }
    if (answer.status != 200) return refusal(address_, answer);
    const json::value parsed_body = parsed(answer.body);
    const json::value* tokens = member(&parsed_body, "tokens");
    std::vector<int32_t> ids;
    if (tokens == nullptr || !tokens->is_array()) return ids;
    for (const json::value& id : tokens->get_array()) {
      ids.push_back(static_cast<int32_t>(number_of(&id)));
    }
    return ids;
  }

  // What was not chosen here is left to the server: it knows what its model recommends.
  void add_sampling(const SamplingParams& sampling, json::object& body) const {
    const SamplingParams& before = unchanged_.sampling;
    const auto add = [&](std::string_view option, std::string_view field, double value,
                         double value_before) {
      if (options_.is_set(option) || value != value_before) body[field] = value;
    };
    add("--temperature", "temperature", sampling.temperature, before.temperature);
    add("--top-p", "top_p", sampling.top_p, before.top_p);
    add("--min-p", "min_p", sampling.min_p, before.min_p);
    add("--repetition-penalty", "repetition_penalty", sampling.repetition_penalty,
        before.repetition_penalty);
    add("--presence-penalty", "presence_penalty", sampling.presence_penalty, 0);
    add("--frequency-penalty", "frequency_penalty", sampling.frequency_penalty, 0);
    if (options_.is_set("--top-k")) body["top_k"] = sampling.top_k;
    body["seed"] = sampling.seed;
  }

  json::object body_of(const Question& question) const {
    json::object body{{"model", model_},
                      {"stream", true},
                      {"stream_options", {{"include_usage", true}}},
                      {"max_tokens", question.settings.max_tokens}};
    if (question.messages != nullptr) {
      body["messages"] = *question.messages;
    } else {
      body["prompt"] = question.text;
    }
    if (!question.stops.empty()) {
      body["stop"] = json::array(question.stops.begin(), question.stops.end());
    }
    if (question.settings.ignore_eos) body["ignore_eos"] = true;
    add_structure(question.structure, body);
    add_sampling(question.settings.sampling, body);
    return body;
  }

  const Options& options_;
  const std::string address_;
  const std::string model_;
  const int64_t context_;
  const Request unchanged_;
  const SamplingDefaults sampling_ = {};
};

constexpr int64_t kUnknownContext = int64_t{1} << 40;  // never full here: the server decides

}  // namespace

Result<std::unique_ptr<AnswerSource>> open_server_answers(const Options& options,
                                                          const std::string& model) {
  const std::string address = server_address(options.text("--server"));
  const HttpAnswer answer = TRY(call_server(call_of(options, address, "/v1/models")));
  if (answer.status != 200) return refusal(address, answer);
  const json::value body = parsed(answer.body);
  const json::value* first = first_of(member(&body, "data"));
  if (first == nullptr && model.empty()) {
    return make_error(ErrorCode::kNotFound, "{} serves no model", address);
  }
  const json::value* chosen = first;
  if (first != nullptr) {
    for (const json::value& each : body.at("data").get_array()) {
      if (!model.empty() && text_of(member(&each, "id")) == model) chosen = &each;
    }
  }
  const int64_t context = number_of(member(chosen, "max_model_len"));
  return std::unique_ptr<AnswerSource>(std::make_unique<RemoteModel>(
      options, address, model.empty() ? text_of(member(first, "id")) : model,
      context > 0 ? context : kUnknownContext));
}

}  // namespace headrace
