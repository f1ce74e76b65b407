// headrace inspect MODEL: what a checkpoint holds and what it would need, from headers alone.

#include <boost/json.hpp>

#include <cstdio>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "cli/command.h"
#include "cli/runtime.h"
#include "cli/terminal.h"

namespace headrace {
namespace {

namespace json = boost::json;

struct FormatCount {
  int64_t num_tensors = 0;
  int64_t num_elements = 0;
  size_t num_bytes = 0;
};

std::map<std::string, FormatCount> count_formats(const Checkpoint& checkpoint) {
  std::map<std::string, FormatCount> formats;
  for (const std::string& name : checkpoint.names()) {
    const TensorView& tensor = *checkpoint.find(name);
    FormatCount& count = formats[std::string(dtype_name(tensor.dtype))];
    ++count.num_tensors;
    count.num_elements += tensor.num_elements();
    count.num_bytes += tensor.num_bytes;
  }
  return formats;
}

json::object describe_files(const Checkpoint& checkpoint) {
  json::object formats;
  int64_t num_elements = 0;
  for (const auto& [name, count] : count_formats(checkpoint)) {
    formats[name] = json::object{{"tensors", count.num_tensors}, {"bytes", count.num_bytes}};
    num_elements += count.num_elements;
  }
  return {{"path", checkpoint.path()},
          {"kind", checkpoint.kind() == CheckpointKind::kGguf ? "gguf" : "safetensors"},
          {"bytes", checkpoint.file_bytes()},
          {"tensors", checkpoint.names().size()},
          {"elements", num_elements},
          {"formats", std::move(formats)},
          {"fingerprint", checkpoint.fingerprint()}};
}

json::object describe_config(const ModelConfig& config) {
  int64_t num_sliding = 0;
  for (const LayerConfig& layer : config.layers) num_sliding += layer.sliding_window > 0 ? 1 : 0;
  const LayerConfig& first = config.layers.front();
  return {{"family", config.family},
          {"architecture", config.architecture},
          {"dtype", config.source_dtype},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"num_hidden_layers", config.num_layers()},
          {"num_attention_heads", first.num_attention_heads},
          {"num_key_value_heads", first.num_key_value_heads},
          {"head_dim", first.head_dim},
          {"intermediate_size", first.intermediate_size},
          {"sliding_layers", num_sliding},
          {"max_position_embeddings", config.max_position_embeddings},
          {"tie_word_embeddings", config.tie_word_embeddings}};
}

json::object describe_text(const Checkpoint& checkpoint) {
  const Result<TextBundle> text = TextBundle::load(checkpoint);
  if (!text.ok()) return {{"error", text.error().to_string()}};
  json::array ends;
  for (const int32_t id : text->end_ids) {
    ends.push_back({{"id", id}, {"token", text->tokenizer->id_to_token(id).value_or("")}});
  }
  return {{"name", text->display_name},
          {"tokenizer_size", text->tokenizer->vocab_size()},
          {"bos_token", text->bos_token},
          {"adds_bos", text->tokenizer->adds_bos()},
          {"end_tokens", std::move(ends)},
          {"chat_template_bytes",
           text->chat_template == nullptr ? 0 : text->chat_template->source().size()}};
}

// What `serve` with the same options would hold, or why the model cannot be loaded.
Result<json::object> describe_memory(const Options& options, const Checkpoint& checkpoint,
                                     const ModelConfig& config) {
  const auto backend = TRY(create_cpu_backend({}));
  const MemoryPlan plan = TRY(Model::memory_plan(checkpoint, *backend, model_options(options)));
  const int64_t context = TRY(context_from_options(options, config));
  const int64_t num_blocks = (context + kBlockTokens - 1) / kBlockTokens;
  return json::object{{"isa", backend->isa()},
                      {"weights", plan.weights},
                      {"workspace", plan.workspace},
                      {"kv_per_token", plan.kv_block / kBlockTokens},
                      {"context", context},
                      {"kv_per_context", plan.kv_block * static_cast<size_t>(num_blocks)}};
}

json::array list_tensors(const Checkpoint& checkpoint) {
  json::array list;
  for (const std::string& name : checkpoint.names()) {
    const TensorView& tensor = *checkpoint.find(name);
    list.push_back({{"name", name},
                    {"dtype", dtype_name(tensor.dtype)},
                    {"shape", tensor.shape_string()},
                    {"bytes", tensor.num_bytes}});
  }
  return list;
}

void print_section(std::string_view title, const json::object& section) {
  std::printf("%s\n", std::string(title).c_str());
  for (const auto& [key, value] : section) {
    const bool is_size = key.ends_with("bytes") || title == "memory";
    const bool is_count = value.is_uint64() || value.is_int64();
    const std::string text = is_size && is_count && key != "context"
                                 ? format_bytes(value.to_number<size_t>())
                             : value.is_string() ? std::string(value.as_string())
                                                 : json::serialize(value);
    std::printf("  %-24s %s\n", std::string(key).c_str(), text.c_str());
  }
}

}  // namespace

Result<int> run_inspect(const Options& options) {
  const auto checkpoint = TRY(open_checkpoint(options, options.positionals().front()));
  json::object report{{"file", describe_files(*checkpoint)}};
  const Result<ModelConfig> config = Model::read_config(*checkpoint);
  if (config.ok()) {
    report["model"] = describe_config(*config);
    const Result<json::object> memory = describe_memory(options, *checkpoint, *config);
    report["memory"] = memory.ok() ? *memory : json::object{{"error", memory.error().to_string()}};
  } else {
    report["model"] = json::object{{"error", config.error().to_string()}};
  }
  report["text"] = describe_text(*checkpoint);
  if (options.flag("--json")) {
    if (options.flag("--tensors")) report["tensors"] = list_tensors(*checkpoint);
    std::printf("%s\n", json::serialize(report).c_str());
    return 0;
  }
  for (const auto& [title, section] : report) print_section(title, section.as_object());
  if (options.flag("--tensors")) {
    for (const json::value& row : list_tensors(*checkpoint)) {
      std::printf("  %-48s %-8s %s\n", row.at("name").as_string().c_str(),
                  row.at("dtype").as_string().c_str(), row.at("shape").as_string().c_str());
    }
  }
  return 0;
}

}  // namespace headrace
