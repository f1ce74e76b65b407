// What is said of a model to Ollama's clients.

#include "checkpoint/hub/store.h"
#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/wall_clock.h"

namespace headrace {
namespace {

// "135M", "7.6B".
std::string parameter_size(int64_t count) {
  const auto number = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", number * 1e-9);
  if (count >= 1'000'000) return fmt::format("{:.0f}M", number * 1e-6);
  return fmt::format("{}", count);
}

bool mentions(const ServingModel& model, std::string_view word) {
  const ChatTemplate* chat_template = model.text.template_for(word == "tools");
  return chat_template != nullptr && chat_template->source().find(word) != std::string::npos;
}

}  // namespace

std::vector<std::string_view> ollama_capabilities(const ServingModel& model) {
  if (model.text.pooling.is_embedding) return {"embedding"};
  std::vector<std::string_view> names{"completion"};
  if (mentions(model, "tools")) names.emplace_back("tools");
  if (model.text.infill) names.emplace_back("insert");
  if (mentions(model, "think") || mentions(model, "reasoning")) names.emplace_back("thinking");
  return names;
}

std::string ollama_digest(const ModelInfo& info) {
  hub::Sha256 digest;
  const std::string text = info.file + "\n" + info.system_fingerprint;
  digest.update(text.data(), text.size());
  return digest.hex();
}

void write_ollama_details(JsonWriter& json, const ModelInfo& info) {
  const bool is_gguf = info.file.ends_with(".gguf");
  json.key("details").open_object().text("parent_model", "");
  json.text("format", is_gguf ? "gguf" : "safetensors").text("family", info.family);
  json.key("families").open_array().text(info.family).close_array();
  json.text("parameter_size", parameter_size(info.num_parameters));
  json.text("quantization_level", info.quantisation).close_object();
}

std::string ollama_show(const ServingModel& model, int64_t created_s) {
  const ModelInfo& info = model.info;
  const ChatTemplate* chat_template = model.text.chat_template.get();
  JsonWriter json;
  json.open_object().text("license", "");
  json.text("modelfile", fmt::format("FROM {}\n", info.name)).text("parameters", "");
  json.text("template", chat_template == nullptr ? "" : chat_template->source());
  write_ollama_details(json, info);
  json.key("model_info").open_object().text("general.architecture", info.family);
  json.text("general.basename", info.name);
  json.integer("general.parameter_count", info.num_parameters);
  json.integer(info.family + ".context_length", model.max_context);
  json.integer(info.family + ".vocab_size", info.vocab_size).close_object();
  json.key("capabilities").open_array();
  for (const std::string_view name : ollama_capabilities(model)) json.text(name);
  json.close_array().text("modified_at", rfc3339(created_s * 1'000'000)).close_object();
  return json.take();
}

}  // namespace headrace
