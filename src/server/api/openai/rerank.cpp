// /v1/rerank and /v1/score: how well texts go with a query. By the model's own judgement where it
// was made for that (the odds of "yes" against "no" as the answer to the question whether the
// document meets the query), else by the cosine of the vectors. The answer says which.
// Sources: the rerank APIs of Cohere and Jina, and vLLM's of both kinds, whose fields these are.

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <numeric>

#include "server/api/asked_model.h"
#include "server/api/openai/openai.h"
#include "server/api/sampling_fields.h"
#include "server/api/wall_clock.h"

namespace headrace {
namespace {

constexpr std::string_view kNeededTexts = "a string, or a list of strings or of objects with text";
constexpr std::string_view kDefaultInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";
// What judging decoders were trained with (the model card of Qwen3-Reranker).
constexpr std::string_view kJudge =
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".";

enum class JudgeBy : uint8_t { kAnswer, kVectors };

// "a text" or {"text": "a text"}.
std::optional<std::string_view> text_of(const boost::json::value& value) {
  const boost::json::value* text = &value;
  if (value.is_object()) text = value.get_object().if_contains("text");
  if (text == nullptr || !text->is_string()) return std::nullopt;
  return std::string_view(text->get_string().data(), text->get_string().size());
}

Result<std::vector<std::string>> parse_texts(const Fields& fields, std::string_view name) {
  const boost::json::value* value = fields.find(name);
  if (value == nullptr) return bad_field(fields.path(name), "missing", kNeededTexts);
  std::vector<std::string> texts;
  const auto add = [&](const boost::json::value& item) -> Status {
    const auto text = text_of(item);
    if (!text) return bad_field(fields.path(name), show_value(item), kNeededTexts);
    texts.emplace_back(*text);
    return {};
  };
  if (!value->is_array()) {
    TRY(add(*value));
    return texts;
  }
  const boost::json::array& list = value->get_array();
  if (list.empty() || list.size() > kMaxEmbeddingInputs) {
    return bad_field(fields.path(name), fmt::format("a list of {}", list.size()),
                     fmt::format("one of 1 to {}", kMaxEmbeddingInputs));
  }
  for (const boost::json::value& item : list) TRY(add(item));
  return texts;
}

// What is to be judged: query i with document i, or the one query with all documents.
struct Pairs {
  std::vector<std::string> queries, documents;
  std::string_view query_field, document_field;  // of the body
  std::string instruction = std::string(kDefaultInstruction);

  const std::string& query(size_t idx) const { return queries[queries.size() == 1 ? 0 : idx]; }
};

ChatPrompt judging_prompt(const Pairs& pairs, size_t idx) {
  const auto message = [](std::string_view role, std::string_view content) {
    return boost::json::object{{"role", role}, {"content", content}};
  };
  ChatPrompt prompt;
  prompt.variables["messages"] = boost::json::array{
      message("system", kJudge),
      message("user", fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}", pairs.instruction,
                                  pairs.query(idx), pairs.documents[idx]))};
  prompt.variables["add_generation_prompt"] = true;
  prompt.variables["enable_thinking"] = false;
  return prompt;
}

// The tokens that begin the two answers.
Result<std::vector<int32_t>> judging_labels(const ServingModel& model) {
  std::vector<int32_t> ids;
  for (const std::string_view label : {"yes", "no"}) {
    const auto id = model.text.tokenizer->token_to_id(label);
    if (!id) {
      return make_error(ErrorCode::kUnsupported,
                        "{} has no token '{}', so it cannot judge by its answer: ask for the "
                        "method 'embedding'",
                        model.info.name, label);
    }
    ids.push_back(*id);
  }
  return ids;
}

Result<JudgeBy> parse_method(const Fields& fields, const ServingModel& model) {
  const auto method = TRY(fields.text("method"));
  const bool has_template = model.text.chat_template != nullptr;
  if (!method) {
    return model.text.pooling.is_reranker && has_template ? JudgeBy::kAnswer : JudgeBy::kVectors;
  }
  if (*method == "embedding") return JudgeBy::kVectors;
  if (*method != "yes_no" || !has_template) {
    return bad_field(fields.path("method"), fmt::format("'{}'", *method),
                     has_template ? "'yes_no' or 'embedding'"
                                  : "'embedding', as this model has no chat template");
  }
  return JudgeBy::kAnswer;
}

// The requests that the pairs need, and the scores that come of their outputs.
class Judge {
 public:
  Judge(Pairs pairs, JudgeBy by) : pairs_(std::move(pairs)), by_(by) {}

  std::string_view method() const { return by_ == JudgeBy::kAnswer ? "yes_no" : "embedding"; }
  const Pairs& pairs() const { return pairs_; }
  size_t num_pairs() const { return pairs_.documents.size(); }

  Status ask(const ServingModel& model, ParsedPooled& parsed) const {
    if (by_ == JudgeBy::kVectors) {
      for (const auto* texts : {&pairs_.queries, &pairs_.documents}) {
        for (const std::string& text : *texts) parsed.prompts.items.emplace_back(PromptText(text));
      }
      parsed.prompts.num_first = pairs_.queries.size();
      parsed.prompts.first_param = pairs_.query_field;
      parsed.bytes_per_prompt = static_cast<size_t>(model.info.hidden_size) * sizeof(float);
      return want_embedding(model, parsed.request);
    }
    Request& prototype = parsed.request.prototype;
    prototype.label_ids = TRY(judging_labels(model));
    prototype.max_tokens = 1;
    prototype.sampling.temperature = 0;
    prototype.ignore_eos = true;  // an end would come without its log-probs
    for (size_t i = 0; i < num_pairs(); ++i) {
      parsed.prompts.items.emplace_back(judging_prompt(pairs_, i));
    }
    return {};
  }

  // In the order of the prompts.
  void add(PooledOutput output) {
    if (by_ == JudgeBy::kVectors) {
      std::vector<float> vector = unit_vector(std::move(output.embedding));
      if (queries_.size() < pairs_.queries.size()) {
        queries_.push_back(std::move(vector));
      } else {
        const size_t idx = queries_.size() == 1 ? 0 : scores_.size();
        scores_.push_back(dot(queries_[idx], vector));
      }
    } else if (output.label_logprobs.size() == 2) {
      const double yes = output.label_logprobs[0], no = output.label_logprobs[1];
      scores_.push_back(1 / (1 + std::exp(no - yes)));
    } else {
      scores_.push_back(0);
    }
  }
  const std::vector<double>& scores() const { return scores_; }

 private:
  const Pairs pairs_;
  const JudgeBy by_;
  std::vector<std::vector<float>> queries_;  // of length 1
  std::vector<double> scores_;
};

void write_usage(JsonWriter& json, const AnswerEnd& end) {
  json.key("usage").open_object().integer("prompt_tokens", end.usage.prompt_tokens);
  json.integer("total_tokens", end.usage.prompt_tokens + end.usage.output_tokens).close_object();
}

// What both answers share.
class JudgingRenderer : public PooledRenderer {
 public:
  JudgingRenderer(std::shared_ptr<Judge> judge, std::string model_name, std::string_view id_prefix)
      : judge_(std::move(judge)),
        model_name_(std::move(model_name)),
        id_(fresh_answer_id(id_prefix)) {}

  const Dialect& dialect() const override { return kOpenAi; }
  const std::string& id() const override { return id_; }
  void add(size_t /*prompt_idx*/, PooledOutput output, JsonWriter& /*json*/) override {
    judge_->add(std::move(output));
  }

 protected:
  const std::shared_ptr<Judge> judge_;
  const std::string model_name_;
  const std::string id_;
};

class RerankRenderer final : public JudgingRenderer {
 public:
  RerankRenderer(std::shared_ptr<Judge> judge, std::string model_name, int64_t top_n,
                 bool with_documents)
      : JudgingRenderer(std::move(judge), std::move(model_name), "rerank-"),
        top_n_(top_n),
        with_documents_(with_documents) {}

  // Best first; equals in the order of the documents.
  void end(const AnswerEnd& end, JsonWriter& json) override {
    const std::vector<double>& scores = judge_->scores();
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    if (top_n_ > 0 && top_n_ < std::ssize(order)) order.resize(static_cast<size_t>(top_n_));
    json.open_object().text("id", id_).text("model", model_name_);
    json.text("method", judge_->method()).key("results").open_array();
    for (const size_t idx : order) {
      json.open_object().integer("index", static_cast<int64_t>(idx));
      json.number("relevance_score", scores[idx]);
      if (with_documents_) {
        json.key("document").open_object().text("text", judge_->pairs().documents[idx]);
        json.close_object();
      }
      json.close_object();
    }
    json.close_array();
    write_usage(json, end);
    json.close_object();
  }

 private:
  const int64_t top_n_;  // 0: all
  const bool with_documents_;
};

class ScoreRenderer final : public JudgingRenderer {
 public:
  ScoreRenderer(std::shared_ptr<Judge> judge, std::string model_name)
      : JudgingRenderer(std::move(judge), std::move(model_name), "score-") {}

  void end(const AnswerEnd& end, JsonWriter& json) override {
    json.open_object().text("id", id_).text("object", "list").integer("created", created_);
    json.text("model", model_name_).text("method", judge_->method()).key("data").open_array();
    const std::vector<double>& scores = judge_->scores();
    for (size_t i = 0; i < scores.size(); ++i) {
      json.open_object().integer("index", static_cast<int64_t>(i)).text("object", "score");
      json.number("score", scores[i]).close_object();
    }
    json.close_array();
    write_usage(json, end);
    json.close_object();
  }

 private:
  const int64_t created_ = unix_seconds();
};

Result<Pairs> parse_pairs(const Fields& fields, std::string_view query_field,
                          std::string_view document_field) {
  Pairs pairs;
  pairs.query_field = query_field;
  pairs.document_field = document_field;
  pairs.queries = TRY(parse_texts(fields, query_field));
  pairs.documents = TRY(parse_texts(fields, document_field));
  return pairs;
}

// The texts of prompts are views of the judge's: the renderer keeps it longer than they are read.
Result<std::shared_ptr<Judge>> make_judge(const Fields& fields, Pairs pairs,
                                          const ServingModel& model, ParsedPooled& parsed) {
  const auto instruction = TRY(fields.text("instruction"));
  if (instruction) pairs.instruction = std::string(*instruction);
  const JudgeBy by = TRY(parse_method(fields, model));
  parsed.prompts.param = pairs.document_field;
  auto judge = std::make_shared<Judge>(std::move(pairs), by);
  TRY(judge->ask(model, parsed));
  TRY(parse_truncation(fields, model, parsed.prompts));
  parsed.request.cache_salt = TRY(parse_salt(fields));
  TRY(read_schedule(fields, parsed.request.prototype));
  parsed.bytes_per_prompt += 128;
  return judge;
}

}  // namespace

Result<ParsedPooled> parse_rerank(const boost::json::object& body, const ServingModel& model) {
  ParsedPooled parsed;
  IgnoredFields ignored;
  std::string model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInRerank, "", ignored));
  const Fields fields(body);
  Pairs pairs = TRY(parse_pairs(fields, "query", "documents"));
  if (pairs.queries.size() != 1) {
    return bad_field("query", fmt::format("a list of {}", pairs.queries.size()), "one text");
  }
  const int64_t top_n = TRY(fields.integer("top_n", 0, INT32_MAX)).value_or(0);
  const bool with_documents = TRY(fields.boolean("return_documents")).value_or(true);
  size_t document_bytes = 0;
  for (const std::string& text : pairs.documents) document_bytes += text.size();
  const size_t num_documents = pairs.documents.size();
  auto judge = TRY(make_judge(fields, std::move(pairs), model, parsed));
  parsed.bytes_per_prompt += 2 * document_bytes / num_documents;
  parsed.renderer = std::make_unique<RerankRenderer>(std::move(judge), std::move(model_name), top_n,
                                                     with_documents);
  name_ignored(ignored, parsed.request.headers);
  return parsed;
}

Result<ParsedPooled> parse_score(const boost::json::object& body, const ServingModel& model) {
  ParsedPooled parsed;
  IgnoredFields ignored;
  std::string model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInScore, "", ignored));
  const Fields fields(body);
  const bool by_name = fields.find("text_1") == nullptr && fields.find("queries") != nullptr;
  Pairs pairs =
      TRY(parse_pairs(fields, by_name ? "queries" : "text_1", by_name ? "documents" : "text_2"));
  if (pairs.queries.size() != 1 && pairs.queries.size() != pairs.documents.size()) {
    return bad_field(
        pairs.query_field,
        fmt::format("a list of {} for {} texts", pairs.queries.size(), pairs.documents.size()),
        "one text, or as many as the others");
  }
  auto judge = TRY(make_judge(fields, std::move(pairs), model, parsed));
  parsed.renderer = std::make_unique<ScoreRenderer>(std::move(judge), std::move(model_name));
  name_ignored(ignored, parsed.request.headers);
  return parsed;
}

}  // namespace headrace
