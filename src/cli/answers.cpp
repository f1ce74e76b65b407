#include "cli/answers.h"

#include <boost/json/serialize.hpp>

#include <utility>

#include "base/log.h"
#include "cli/runtime.h"
#include "server/api/structure.h"
#include "server/api/tool_use.h"

namespace headrace {
namespace {

namespace json = boost::json;

class LoadedModel final : public AnswerSource {
 public:
  LoadedModel(Runtime runtime, const ContextLimit& context)
      : runtime_(std::move(runtime)), context_(context) {}

  std::string name() const override { return runtime_.text.display_name; }
  bool is_base() const override { return runtime_.text.chat_template == nullptr; }
  ContextLimit context() const override { return context_; }
  const SamplingDefaults& sampling() const override { return runtime_.text.sampling; }

  Result<std::vector<int32_t>> encode_messages(const json::array& messages,
                                               bool structured) override {
    ChatPrompt prompt;
    prompt.variables = {{"messages", messages}, {"add_generation_prompt", true}};
    AnswerForm form;
    if (structured) form.reasoning.enabled = false;
    add_template_variables(serving_, form, prompt);
    const TextBundle& text = runtime_.text;
    auto ids =
        TRY(text.encode_chat(TRY(text.chat_template->render(json::serialize(prompt.variables)))));
    if (structured && text.opens_reasoning(ids)) TRY(close_reasoning(ids));
    return ids;
  }

  Result<std::vector<int32_t>> encode_text(const std::string& text) override {
    return runtime_.text.encode_prompt(text, true);
  }

  Result<Answer> answer(Question question) override {
    GenerationRequest asked;
    asked.prototype = std::move(question.settings);
    asked.form.structure = std::move(question.structure);
    TRY(apply_structure(serving_, asked));
    Request request = std::move(asked.prototype);
    if (asked.make_constraint) request.constraint = asked.make_constraint();
    request.prompt_ids = std::move(question.ids);
    return generate({*runtime_.engine, *runtime_.text.tokenizer, std::move(request),
                     std::move(question.stops), std::move(question.write), question.interrupted});
  }

 private:
  // The template has begun to reason: there is nothing to think of.
  Status close_reasoning(std::vector<int32_t>& ids) const {
    const ReasoningFormat* format = runtime_.text.formats.reasoning;
    const auto end =
        TRY(runtime_.text.tokenizer->encode(std::string(format->close) + "\n\n", false));
    ids.insert(ids.end(), end.begin(), end.end());
    return {};
  }

  Runtime runtime_;
  const ContextLimit context_;
  const ModelInfo info_;  // nobody asks for it here
  const ServingModel serving_{runtime_.text, info_, {}, context_.num_tokens};
};

// Memory for keys and values may hold less than what was asked for.
Result<ContextLimit> context_of(const Options& options, const Runtime& runtime) {
  const ModelConfig& config = runtime.model->config();
  const int64_t wanted = TRY(context_from_options(options, config));
  const int64_t held = runtime.engine->max_context();
  if (held < wanted) return ContextLimit{held, "--kv-memory"};
  return ContextLimit{held, wanted < config.max_position_embeddings ? "--context" : ""};
}

}  // namespace

Result<std::unique_ptr<AnswerSource>> open_answers(const Options& options, const std::string& model,
                                                   bool named) {
  if (!options.text("--server").empty()) return open_server_answers(options, named ? model : "");
  if (options.flag("--quiet")) set_log_level(LogLevel::kError);
  Runtime runtime = TRY(open_engine(options, model));
  const ContextLimit context = TRY(context_of(options, runtime));
  return std::unique_ptr<AnswerSource>(std::make_unique<LoadedModel>(std::move(runtime), context));
}

}  // namespace headrace
