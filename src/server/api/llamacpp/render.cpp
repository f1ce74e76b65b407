#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include "server/api/json.h"
#include "server/api/llamacpp/llamacpp.h"
#include "server/api/token_scores.h"
#include "server/api/wall_clock.h"

namespace headrace {
namespace {

std::string_view stop_type(const Finish& finish) {
  switch (finish.kind) {
    case Finish::Kind::kNone:
      return "none";
    case Finish::Kind::kLength:
      return "limit";
    case Finish::Kind::kStopString:
      return "word";
    case Finish::Kind::kRepetition:
      return "repetition";
    default:
      return "eos";
  }
}

class LlamaRenderer : public AnswerRenderer {
 public:
  LlamaRenderer(const ServingModel& model, LlamaAnswer answer)
      : answer_(std::move(answer)),
        scores_(*model.text.tokenizer, answer_.num_top, {.with_id = true}),
        id_(fmt::format("completion-{}", wall_clock_us())) {}

  const Dialect& dialect() const override { return kLlamaCpp; }
  const std::string& id() const override { return id_; }

  void see_token(int32_t id) override {
    if (answer_.with_tokens) tokens_.push_back(id);
  }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    scores_.add(token, scores);
  }

  std::string chunk(const ChoiceDelta& delta, const Usage& so_far) override {
    if (delta.finish.kind != Finish::Kind::kNone) finish_ = delta.finish;
    const std::string text = text_of(delta);
    if (text.empty() && delta.scores.num_tokens == 0) return {};
    JsonWriter json;
    open(json, text);
    json.boolean("stop", false).integer("id_slot", 0);
    json.integer("tokens_predicted", so_far.output_tokens);
    json.integer("tokens_evaluated", so_far.prompt_tokens);
    write_scores(json, delta.scores);
    json.close_object();
    return kLlamaCpp.framing.frame(json.str());
  }

  std::string end_stream(const AnswerEnd& end) override {
    JsonWriter json;
    open(json, {});
    write_end(json, end);
    return kLlamaCpp.framing.frame(answer_.paths.empty() ? json.str() : chosen(json.str()));
  }

  std::string stream_error(const Error& error) override {
    return kLlamaCpp.framing.frame(kLlamaCpp.error_body(problem_of(error)));
  }

  void begin_whole(JsonWriter& /*json*/) override {}
  void add_choice(const ChoiceDelta& choice, JsonWriter& json) override {
    finish_ = choice.finish;
    const std::string text = text_of(choice);
    JsonWriter& to = answer_.paths.empty() ? json : all_;
    open(to, text);
    write_scores(to, choice.scores);
  }
  void end_whole(const AnswerEnd& end, JsonWriter& json) override {
    if (answer_.paths.empty()) return write_end(json, end);
    write_end(all_, end);
    json.raw(chosen(all_.str()));
  }

 private:
  // Of a whole object what was asked for, by its path: {"timings/prompt_n": 3}. What it lacks is
  // left out.
  std::string chosen(std::string_view whole) const {
    const boost::json::value all = boost::json::parse(whole);
    boost::json::object found;
    for (const std::string& path : answer_.paths) {
      boost::system::error_code lacks;
      const boost::json::value* at = all.find_pointer("/" + path, lacks);
      if (at != nullptr) found[path] = *at;
    }
    return to_text(found);
  }

  // All of it: this dialect knows one kind of text.
  std::string text_of(const ChoiceDelta& delta) {
    std::string text;
    for (const OutputPart& part : delta.parts) text += part.text;
    has_new_line_ = has_new_line_ || text.find('\n') != std::string::npos;
    return text;
  }

  // The ids that came since the last piece.
  void open(JsonWriter& json, std::string_view text) {
    json.open_object().integer("index", 0).text("content", text).key("tokens").open_array();
    for (const int32_t id : tokens_) json.integer(id);
    json.close_array();
    tokens_.clear();
  }

  void write_end(JsonWriter& json, const AnswerEnd& end) const {
    const Usage& usage = end.usage;
    json.integer("id_slot", 0).boolean("stop", true).text("model", answer_.model_name);
    json.integer("tokens_predicted", usage.output_tokens);
    json.integer("tokens_evaluated", usage.prompt_tokens);
    json.key("generation_settings").raw(answer_.settings);
    json.boolean("has_new_line", has_new_line_).boolean("truncated", false);
    json.text("stop_type", stop_type(finish_)).text("stopping_word", finish_.stop);
    json.integer("tokens_cached", int64_t{usage.prompt_tokens} + usage.output_tokens);
    write_timings(json, end);
    json.close_object();
  }

  static void write_timings(JsonWriter& json, const AnswerEnd& end) {
    const RequestTimes& times = end.times;
    const auto ms_between = [](TimeUs from, TimeUs to) {
      return from > 0 && to > from ? static_cast<double>(to - from) * 1e-3 : 0.0;
    };
    const auto write = [&json](const std::string& name, int32_t count, double ms) {
      const double each = count > 0 ? ms / count : 0;
      json.integer(name + "_n", count).number(name + "_ms", ms);
      json.number(name + "_per_token_ms", each);
      json.number(name + "_per_second", each > 0 ? 1000 / each : 0);
    };
    json.key("timings").open_object().integer("cache_n", end.usage.cached_tokens);
    write("prompt", end.usage.prompt_tokens - end.usage.cached_tokens,
          ms_between(times.started, times.first_token));
    write("predicted", end.usage.output_tokens, ms_between(times.first_token, times.finished));
    json.close_object();
  }

  static void write_scores(JsonWriter& json, const ScoreText& scores) {
    if (scores.num_tokens == 0) return;
    write_score_list(json, "completion_probabilities", scores.lists[0]);
  }

  const LlamaAnswer answer_;
  const ScoreWriter scores_;
  const std::string id_;
  Finish finish_;
  bool has_new_line_ = false;
  JsonWriter all_;               // the answer, where only some of it is told
  std::vector<int32_t> tokens_;  // not yet shown
};

}  // namespace

std::unique_ptr<AnswerRenderer> make_llama_renderer(const ServingModel& model, LlamaAnswer answer) {
  return std::make_unique<LlamaRenderer>(model, std::move(answer));
}

std::string llama_settings(const GenerationRequest& request) {
  const Request& asked = request.prototype;
  const SamplingParams& sampling = asked.sampling;
  JsonWriter json;
  json.open_object().key("temperature").number(sampling.temperature);
  json.integer("top_k", sampling.top_k).key("top_p").number(sampling.top_p);
  json.key("min_p").number(sampling.min_p);
  json.key("typical_p").number(sampling.typical_p);
  json.key("top_n_sigma").number(sampling.top_n_sigma);
  json.key("xtc_probability").number(sampling.xtc_probability);
  json.key("xtc_threshold").number(sampling.xtc_threshold);
  json.integer("mirostat", sampling.mirostat ? 2 : 0);
  json.key("mirostat_tau").number(sampling.mirostat_tau);
  json.key("mirostat_eta").number(sampling.mirostat_eta);
  json.key("dry_multiplier").number(sampling.dry.multiplier);
  json.key("dry_base").number(sampling.dry.base);
  json.integer("dry_allowed_length", sampling.dry.allowed_length);
  json.integer("dry_penalty_last_n", sampling.dry.window);
  json.key("repeat_penalty").number(sampling.repetition_penalty).integer("repeat_last_n", -1);
  json.key("presence_penalty").number(sampling.presence_penalty);
  json.key("frequency_penalty").number(sampling.frequency_penalty);
  json.integer("n_predict", asked.max_tokens).integer("max_tokens", asked.max_tokens);
  json.integer("n_probs", asked.num_logprobs.value_or(0));
  json.boolean("ignore_eos", asked.ignore_eos).boolean("stream", request.stream);
  json.key("stop").open_array();
  for (const std::string& stop : request.stop) json.text(stop);
  json.close_array().close_object();
  return json.take();
}

std::string llama_props(const ServingModel& model, int num_slots, bool is_sleeping) {
  const TextBundle& text = model.text;
  GenerationRequest usual;
  usual.prototype.sampling = default_sampling(text.sampling);
  usual.prototype.max_tokens = -1;
  JsonWriter json;
  json.open_object().key("default_generation_settings").open_object();
  json.key("params").raw(llama_settings(usual)).integer("n_ctx", model.max_context);
  json.close_object().integer("total_slots", num_slots).text("model_alias", model.info.name);
  json.text("model_path", model.info.file);
  json.text("chat_template", text.chat_template == nullptr ? "" : text.chat_template->source());
  if (text.tool_template != nullptr) {
    json.text("chat_template_tool_use", text.tool_template->source());
  }
  json.text("bos_token", text.bos_token).text("eos_token", text.eos_token);
  json.key("modalities").open_object().boolean("vision", false).boolean("audio", false);
  json.close_object().text("build_info", model.info.system_fingerprint);
  json.boolean("is_sleeping", is_sleeping).close_object();
  return json.take();
}

}  // namespace headrace
