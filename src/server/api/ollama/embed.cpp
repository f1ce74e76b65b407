// /api/embed and /api/embeddings: bodies and answers.

#include <boost/json/array.hpp>

#include "server/api/asked_model.h"
#include "server/api/json.h"
#include "server/api/ollama/ollama.h"

namespace headrace {
namespace {

constexpr int64_t kEmbedNsPerUs = 1000;
constexpr size_t kBytesPerVectorNumber = 16;  // as it is written, from above
constexpr std::string_view kTextsNeeded = "a string or a list of strings";

struct EmbedForm {
  std::string model_name;  // as the client calls the model
  int64_t dimensions = 0;  // 0: all
  bool is_old = false;     // /api/embeddings: one vector, as the model makes it
};

class OllamaVectors final : public PooledRenderer {
 public:
  explicit OllamaVectors(EmbedForm form) : form_(std::move(form)) {}

  const Dialect& dialect() const override { return kOllama; }
  const std::string& id() const override { return id_; }

  void add(size_t prompt_idx, PooledOutput output, JsonWriter& json) override {
    if (form_.is_old) {
      json.open_object().key("embedding");
      return write(json, output.embedding);
    }
    if (prompt_idx == 0) {
      json.open_object().text("model", form_.model_name).key("embeddings").open_array();
    }
    write(json, unit_vector(std::move(output.embedding), form_.dimensions));
  }

  void end(const AnswerEnd& end, JsonWriter& json) override {
    if (form_.is_old) {
      json.close_object();
      return;
    }
    const RequestTimes& times = end.times;
    const TimeUs total = times.finished > times.submitted ? times.finished - times.submitted : 0;
    json.close_array().integer("total_duration", total * kEmbedNsPerUs).integer("load_duration", 0);
    json.integer("prompt_eval_count", end.usage.prompt_tokens).close_object();
  }

 private:
  static void write(JsonWriter& json, const std::vector<float>& vector) {
    json.open_array();
    for (const float value : vector) json.number(value);
    json.close_array();
  }

  const EmbedForm form_;
  const std::string id_ = fresh_answer_id("embed-");
};

Result<PromptSource> parse_texts_to_embed(const Fields& fields, std::string_view name) {
  PromptSource source;
  source.param = name;
  const boost::json::value* value = fields.find(name);
  const bool takes_list = name != "prompt";
  if (value == nullptr) return bad_field(name, "missing", takes_list ? kTextsNeeded : "a string");
  if (value->is_string()) {
    source.items.emplace_back(text_view(value->get_string()));
    return source;
  }
  if (!takes_list) return bad_field(name, show_value(*value), "a string");
  if (!value->is_array() || value->get_array().empty() ||
      value->get_array().size() > kMaxEmbeddingInputs) {
    return bad_field(name, show_value(*value),
                     fmt::format("{}, at most {}", kTextsNeeded, kMaxEmbeddingInputs));
  }
  for (const boost::json::value& item : value->get_array()) {
    if (!item.is_string()) {
      return bad_field(name, fmt::format("a list that holds {}", show_value(item)), kTextsNeeded);
    }
    source.items.emplace_back(text_view(item.get_string()));
  }
  return source;
}

// The two forms share their fields: what the other one reads has its type here too.
Result<PromptSource> parse_vector_texts(const Fields& fields, bool is_old) {
  const std::string_view read = is_old ? "prompt" : "input";
  const std::string_view unread = is_old ? "input" : "prompt";
  PromptSource source = TRY(parse_texts_to_embed(fields, read));
  if (fields.find(unread) != nullptr) TRY(parse_texts_to_embed(fields, unread));
  return source;
}

Result<ParsedPooled> parse_ollama_vectors(const boost::json::object& body,
                                          const ServingModel& model, bool is_old) {
  ParsedPooled parsed;
  IgnoredFields ignored;
  EmbedForm form;
  form.is_old = is_old;
  form.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInOllamaEmbed, "", ignored));
  const Fields fields(body);
  const boost::json::object* options = TRY(fields.object("options"));
  if (options != nullptr) TRY(check_fields(*options, kInOllamaOptions, "options.", ignored));
  form.dimensions = TRY(fields.integer("dimensions", 1, model.info.hidden_size)).value_or(0);
  TRY(want_embedding(model, parsed.request));
  parsed.prompts = TRY(parse_vector_texts(fields, is_old));
  if (TRY(fields.boolean("truncate")).value_or(true))
    parsed.prompts.truncate_to = model.max_context;
  parsed.bytes_per_prompt =
      static_cast<size_t>(model.info.hidden_size) * (sizeof(float) + kBytesPerVectorNumber) + 64;
  parsed.renderer = std::make_unique<OllamaVectors>(std::move(form));
  name_ignored(ignored, parsed.request.headers);
  return parsed;
}

}  // namespace

Result<ParsedPooled> parse_ollama_embed(const boost::json::object& body,
                                        const ServingModel& model) {
  return parse_ollama_vectors(body, model, false);
}

Result<ParsedPooled> parse_ollama_embeddings(const boost::json::object& body,
                                             const ServingModel& model) {
  return parse_ollama_vectors(body, model, true);
}

}  // namespace headrace
