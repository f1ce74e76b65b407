// /v1/embeddings: bodies and answers.

#include <boost/json/array.hpp>

#include "base/log.h"
#include "server/api/asked_model.h"
#include "server/api/openai/openai.h"
#include "server/api/sampling_fields.h"

namespace headrace {
namespace {

constexpr int64_t kMaxForeignIds = 1 << 20;  // of one input

constexpr std::string_view kNeeded =
    "a string, a list of strings, a list of token ids or a list of such lists";

// Ids of another vocabulary look like ids of this one: said once, not for every request.
void warn_of_ids() {
  static const bool said = [] {
    LOG(kWarning,
        "a client sends token ids to /v1/embeddings: they are taken as ids of this model. Clients "
        "that make them with another tokenizer (LangChain's OpenAIEmbeddings does) must send text "
        "(check_embedding_ctx_length=False there), or --embedding-ids names that tokenizer's file");
    return true;
  }();
  (void)said;
}

// What the ids mean in the vocabulary of the clients, in that of the model.
Result<PromptItem> read_foreign_ids(const boost::json::array& array, const Tokenizer& foreign,
                                    bool add_special, const ServingModel& model) {
  const PromptIds ids = TRY(parse_ids(array, "input", foreign.vocab_size(), kMaxForeignIds));
  const std::string text = valid_utf8(TRY(foreign.decode(ids, /*skip_special=*/true)));
  auto own = model.text.encode_prompt(text, add_special, {.max_tokens = kMaxForeignIds});
  if (!own.ok()) {
    Error error = own.error();
    error.param = "input";
    return error;
  }
  return PromptItem(std::move(own).value());
}

Result<PromptItem> parse_input(const boost::json::value& value, bool add_special,
                               const ServingModel& model) {
  if (value.is_string()) {
    return PromptItem(PromptText(value.get_string().data(), value.get_string().size()));
  }
  const Tokenizer* foreign = model.text.input_tokenizer.get();
  if (foreign != nullptr) return read_foreign_ids(value.get_array(), *foreign, add_special, model);
  warn_of_ids();
  PromptIds ids =
      TRY(parse_ids(value.get_array(), "input", model.info.vocab_size, model.max_context));
  return PromptItem(std::move(ids));
}

Status parse_list(const boost::json::array& array, const ServingModel& model,
                  PromptSource& source) {
  if (array.size() > kMaxEmbeddingInputs) {
    return bad_field("input", fmt::format("a list of {}", array.size()),
                     fmt::format("one of at most {}", kMaxEmbeddingInputs));
  }
  for (const boost::json::value& item : array) {
    if (item.kind() != array[0].kind() || (!item.is_string() && !item.is_array())) {
      return bad_field("input", fmt::format("a list that holds {}", show_value(item)), kNeeded);
    }
    source.items.push_back(TRY(parse_input(item, source.add_special, model)));
  }
  return {};
}

Result<PromptSource> parse_inputs(const Fields& fields, const ServingModel& model) {
  PromptSource source;
  source.param = "input";
  source.add_special = TRY(fields.boolean("add_special_tokens")).value_or(true);
  const boost::json::value* value = fields.find("input");
  if (value == nullptr) return bad_field("input", "missing", kNeeded);
  const bool is_list = value->is_array();
  if (!is_list && !value->is_string()) return bad_field("input", show_value(*value), kNeeded);
  if (is_list && value->get_array().empty()) return bad_field("input", "an empty list", kNeeded);
  if (is_list && !value->get_array()[0].is_number()) {
    TRY(parse_list(value->get_array(), model, source));
  } else {
    source.items.push_back(TRY(parse_input(*value, source.add_special, model)));
  }
  return source;
}

struct VectorForm {
  std::string model_name;  // as the client calls the model
  int64_t dimensions = 0;  // 0: all
  bool base64 = false;
  bool normalize = true;
};

class EmbeddingRenderer final : public PooledRenderer {
 public:
  explicit EmbeddingRenderer(VectorForm form) : form_(std::move(form)) {}

  const Dialect& dialect() const override { return kOpenAi; }
  const std::string& id() const override { return id_; }

  void add(size_t prompt_idx, PooledOutput output, JsonWriter& json) override {
    if (prompt_idx == 0) json.open_object().text("object", "list").key("data").open_array();
    std::vector<float> vector = std::move(output.embedding);
    if (form_.normalize) {
      vector = unit_vector(std::move(vector), form_.dimensions);
    } else if (form_.dimensions > 0) {
      vector.resize(static_cast<size_t>(form_.dimensions));
    }
    json.open_object().text("object", "embedding");
    json.integer("index", static_cast<int64_t>(prompt_idx)).key("embedding");
    if (form_.base64) {
      json.text(base64_of(vector));
    } else {
      json.open_array();
      for (const float value : vector) json.number(value);
      json.close_array();
    }
    json.close_object();
  }

  void end(const AnswerEnd& end, JsonWriter& json) override {
    json.close_array().text("model", form_.model_name).key("usage").open_object();
    json.integer("prompt_tokens", end.usage.prompt_tokens);
    json.integer("total_tokens", end.usage.prompt_tokens).close_object().close_object();
  }

 private:
  const VectorForm form_;
  const std::string id_ = fresh_answer_id("embd-");
};

Result<VectorForm> parse_form(const Fields& fields, const ServingModel& model) {
  VectorForm form;
  const auto encoding = TRY(fields.text("encoding_format"));
  if (encoding && *encoding != "float" && *encoding != "base64") {
    return bad_field("encoding_format", fmt::format("'{}'", *encoding), "'float' or 'base64'");
  }
  form.base64 = encoding == "base64";
  form.dimensions = TRY(fields.integer("dimensions", 1, model.info.hidden_size)).value_or(0);
  form.normalize = TRY(fields.boolean("normalize")).value_or(true);
  return form;
}

}  // namespace

Status parse_truncation(const Fields& fields, const ServingModel& model, PromptSource& source) {
  const auto most = TRY(fields.integer("truncate_prompt_tokens", -1, model.max_context));
  if (!most) return {};
  if (*most == 0) return bad_field("truncate_prompt_tokens", "0", "at least 1, or -1");
  source.truncate_to = *most == -1 ? model.max_context : *most;
  return {};
}

Result<ParsedPooled> parse_embedding(const boost::json::object& body, const ServingModel& model) {
  ParsedPooled parsed;
  IgnoredFields ignored;
  std::string model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInEmbedding, "", ignored));
  const Fields fields(body);
  VectorForm form = TRY(parse_form(fields, model));
  form.model_name = std::move(model_name);
  TRY(want_embedding(model, parsed.request));
  parsed.request.cache_salt = TRY(parse_salt(fields));
  TRY(read_schedule(fields, parsed.request.prototype));
  parsed.prompts = TRY(parse_inputs(fields, model));
  TRY(parse_truncation(fields, model, parsed.prompts));
  // The vector, and its text: at most 16 characters a number, 16 for every three bytes' four.
  const auto width = static_cast<size_t>(model.info.hidden_size);
  parsed.bytes_per_prompt = width * (sizeof(float) + (form.base64 ? 6 : 16)) + 64;
  parsed.renderer = std::make_unique<EmbeddingRenderer>(std::move(form));
  name_ignored(ignored, parsed.request.headers);
  return parsed;
}

}  // namespace headrace
