#include "cli/answers.h"

#include <boost/json/serialize.hpp>

#include <utility>

#include "cli/runtime.h"

namespace headrace {
namespace {

namespace json = boost::json;

class LoadedModel final : public AnswerSource {
 public:
  explicit LoadedModel(Runtime runtime) : runtime_(std::move(runtime)) {}

  std::string name() const override { return runtime_.text.display_name; }
  bool is_base() const override { return runtime_.text.chat_template == nullptr; }
  int64_t max_context() const override { return runtime_.engine->max_context(); }
  const SamplingDefaults& sampling() const override { return runtime_.text.sampling; }

  Result<std::vector<int32_t>> encode_messages(const json::array& messages) override {
    const json::object variables{{"messages", messages}, {"add_generation_prompt", true}};
    return runtime_.text.encode_chat(
        TRY(runtime_.text.chat_template->render(json::serialize(variables))));
  }

  Result<std::vector<int32_t>> encode_text(const std::string& text) override {
    return runtime_.text.encode_prompt(text, true);
  }

  Result<Answer> answer(Question question) override {
    Request request = std::move(question.settings);
    request.prompt_ids = std::move(question.ids);
    return generate({*runtime_.engine, *runtime_.text.tokenizer, std::move(request),
                     std::move(question.stops), std::move(question.write), question.interrupted});
  }

 private:
  Runtime runtime_;
};

}  // namespace

Result<std::unique_ptr<AnswerSource>> open_answers(const Options& options, const std::string& model,
                                                   bool named) {
  if (!options.text("--server").empty()) return open_server_answers(options, named ? model : "");
  return std::unique_ptr<AnswerSource>(
      std::make_unique<LoadedModel>(TRY(open_engine(options, model))));
}

}  // namespace headrace
