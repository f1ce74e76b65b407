// headrace inspect [MODEL]: what a checkpoint holds and what it would need, from headers alone.

#include <boost/json.hpp>

#include <cstdio>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "base/strings.h"
#include "cli/command.h"
#include "cli/inspect_model.h"
#include "cli/model_argument.h"
#include "cli/readable.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "cli/word_wrap.h"
#include "engine/kv_sizing.h"

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

json::object file_report(const Checkpoint& checkpoint) {
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

json::object describe_text(const Checkpoint& checkpoint) {
  const Result<TextBundle> text = TextBundle::load(checkpoint);
  if (!text.ok()) return {{"error", text.error().to_string()}};
  json::array ends;
  for (const int32_t id : text->end_ids) {
    ends.push_back({{"id", id}, {"token", text->tokenizer->id_to_token(id).value_or("")}});
  }
  json::object sampling;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) sampling[name] = *value;
  };
  add("temperature", text->sampling.temperature);
  add("top_k", text->sampling.top_k);
  add("top_p", text->sampling.top_p);
  add("min_p", text->sampling.min_p);
  add("repetition_penalty", text->sampling.repetition_penalty);
  json::object described{
      {"name", text->display_name},
      {"tokenizer_size", text->tokenizer->vocab_size()},
      {"bos_token", text->bos_token},
      {"adds_bos", text->tokenizer->adds_bos()},
      {"end_tokens", std::move(ends)},
      {"chat_template_bytes",
       text->chat_template == nullptr ? 0 : text->chat_template->source().size()}};
  if (!sampling.empty()) described["sampling"] = std::move(sampling);
  return described;
}

// What serve reserves for keys and values if it is not told: pages count once they are written, so
// an idle server holds none of it. What the weights and the rest take is no longer there for it.
Result<size_t> default_kv_bytes(const MemoryPlan& plan, int64_t context, int64_t max_chunk) {
  EngineOptions engine;
  engine.max_context = context;
  const size_t available = available_memory_bytes();
  const size_t taken = std::min(available, plan.weights + plan.workspace + plan.other);
  const KvSize size = TRY(size_kv(engine, context, plan.kv, max_chunk, available - taken));
  return plan.kv.block_bytes * static_cast<size_t>(size.num_blocks);
}

// What `serve` with the same options would hold, or why the model cannot be loaded.
Result<json::object> describe_memory(const Options& options, const Checkpoint& checkpoint,
                                     const ModelConfig& config) {
  const auto backend = TRY(create_cpu_backend({}));
  const ModelOptions model = model_options(options, *backend);
  const MemoryPlan plan = TRY(Model::memory_plan(checkpoint, *backend, model));
  const int64_t context = TRY(context_from_options(options, config));
  return json::object{
      {"isa", backend->isa()},
      {"weights", plan.weights},
      {"workspace", plan.workspace},
      {"other", plan.other},
      {"kv_per_token", kv_bytes_of_token(plan.kv)},
      {"state_per_sequence", state_bytes_of_sequence(plan.kv, *backend)},
      {"context", context},
      {"kv_per_context", plan.kv.bytes_for(context, model.max_batch_tokens)},
      {"kv_reserved_by_serve", TRY(default_kv_bytes(plan, context, model.max_batch_tokens))},
      {"kv_touched_at_start", 0},
      {"available_now", available_memory_bytes()}};
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

std::string shown_text(const json::value& value) {
  return without_controls(std::string_view(value.as_string()));
}
std::string shown_count(const json::value& value) {
  return format_count(value.to_number<int64_t>());
}
std::string shown_bytes(const json::value& value) {
  return format_bytes(value.to_number<size_t>());
}
// One number, or several that layers have.
std::string shown_sizes(const json::value& value) {
  if (!value.is_array()) return shown_count(value);
  std::string text;
  for (const json::value& size : value.as_array()) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", shown_count(size));
  }
  return text;
}
// Names with their numbers of layers: "18 gated delta, 6 attention".
std::string shown_kinds(const json::value& value) {
  std::string text;
  for (const auto& [name, count] : value.as_object()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", shown_count(count),
                        std::string_view(name));
  }
  return text;
}
std::string shown_experts(const json::value& value) {
  std::string text = fmt::format(
      "{} of {} for each token, of size {}", shown_count(value.at("num_experts_per_token")),
      shown_count(value.at("num_experts")), shown_count(value.at("intermediate_size")));
  const json::value& shared = value.at("shared_intermediate_size");
  if (shared != 0) text += fmt::format(", and a shared one of {}", shown_count(shared));
  return text;
}
// Empty, and not shown, for networks without.
std::string shown_state(const json::value& value) {
  return value.to_number<size_t>() == 0 ? "" : shown_bytes(value) + " for each sequence";
}
std::string shown_choice(const json::value& value) { return value.as_bool() ? "yes" : "no"; }
std::string shown_token(const json::value& value) {
  return value.as_string().empty() ? "none" : readable(std::string_view(value.as_string()));
}

std::string shown_formats(const json::value& value) {
  std::string text;
  for (const auto& [name, count] : value.as_object()) {
    text += fmt::format("{}{} in {} tensor{} ({})", text.empty() ? "" : ", ",
                        std::string_view(name), shown_count(count.at("tensors")),
                        count.at("tensors") == 1 ? "" : "s", shown_bytes(count.at("bytes")));
  }
  return text;
}

std::string shown_tokens(const json::value& value) {
  std::string text;
  for (const json::value& token : value.as_array()) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", shown_token(token.at("token")),
                        token.at("id").to_number<int64_t>());
  }
  return text.empty() ? "none" : text;
}

std::string shown_template(const json::value& value) {
  if (value.to_number<size_t>() > 0) return "yes, " + shown_bytes(value);
  return "none: a base model, it continues text instead of answering";
}

std::string shown_sampling(const json::value& value) {
  std::string text;
  for (const auto& [name, number] : value.as_object()) {
    text += fmt::format("{}{} {:.4g}", text.empty() ? "" : ", ", std::string_view(name),
                        number.to_number<double>());
  }
  return text;
}

// What people read, in this order: which keys of the report, under which words.
struct ShownRow {
  std::string_view section, key, label;
  std::string (*show)(const json::value& value);
};

constexpr ShownRow kShown[] = {
    {"text", "name", "name", shown_text},
    {"text", "error", "text", shown_text},
    {"file", "path", "path", shown_text},
    {"file", "kind", "kind", shown_text},
    {"file", "bytes", "size", shown_bytes},
    {"file", "elements", "parameters", shown_count},
    {"file", "tensors", "tensors", shown_count},
    {"file", "formats", "formats", shown_formats},
    {"file", "fingerprint", "fingerprint", shown_text},
    {"model", "error", "model", shown_text},
    {"model", "family", "family", shown_text},
    {"model", "architecture", "architecture", shown_text},
    {"model", "dtype", "made as", shown_text},
    {"model", "max_position_embeddings", "longest context", shown_count},
    {"model", "active_parameters", "used by a token", shown_count},
    {"model", "num_hidden_layers", "layers", shown_count},
    {"model", "mixers", "of which", shown_kinds},
    {"model", "mlps", "MLPs", shown_kinds},
    {"model", "experts", "experts", shown_experts},
    {"model", "prediction_head", "prediction head", shown_choice},
    {"model", "sliding_layers", "windowed layers", shown_count},
    {"model", "hidden_size", "hidden size", shown_count},
    {"model", "intermediate_size", "MLP size", shown_sizes},
    {"model", "num_attention_heads", "query heads", shown_sizes},
    {"model", "num_key_value_heads", "KV heads", shown_sizes},
    {"model", "head_dim", "head size", shown_sizes},
    {"model", "vocab_size", "vocabulary", shown_count},
    {"model", "tie_word_embeddings", "head is embedding", shown_choice},
    {"text", "chat_template_bytes", "chat template", shown_template},
    {"text", "sampling", "sampling", shown_sampling},
    {"text", "tokenizer_size", "tokens", shown_count},
    {"text", "bos_token", "begin token", shown_token},
    {"text", "adds_bos", "put before texts", shown_choice},
    {"text", "end_tokens", "end tokens", shown_tokens},
    {"memory", "error", "memory", shown_text},
    {"memory", "isa", "kernels", shown_text},
    {"memory", "weights", "weights", shown_bytes},
    {"memory", "workspace", "workspace", shown_bytes},
    {"memory", "other", "other", shown_bytes},
    {"memory", "context", "context here", shown_count},
    {"memory", "kv_per_token", "KV of a token", shown_bytes},
    {"memory", "state_per_sequence", "state", shown_state},
    {"memory", "kv_per_context", "KV of a context", shown_bytes},
    {"memory", "kv_reserved_by_serve", "KV of serve", shown_bytes},
    {"memory", "available_now", "available now", shown_bytes},
};

void print_report(const json::object& report) {
  std::string_view section;
  for (const ShownRow& row : kShown) {
    const json::value* value = report.at(row.section).as_object().if_contains(row.key);
    if (value == nullptr) continue;
    const std::string text = row.show(*value);
    if (text.empty() && row.show == shown_state) continue;
    if (!section.empty() && section != row.section) std::printf("\n");
    section = row.section;
    std::printf("%-18s %s\n", std::string(row.label).c_str(), text.c_str());
  }
}

void print_tensors(const Checkpoint& checkpoint) {
  std::printf("\n%-48s %-8s %12s  %s\n", "tensor", "format", "size", "shape");
  for (const std::string& name : checkpoint.names()) {
    const TensorView& tensor = *checkpoint.find(name);
    std::printf("%-48s %-8s %12s  %s\n", without_controls(name).c_str(),
                std::string(dtype_name(tensor.dtype)).c_str(),
                format_bytes(tensor.num_bytes).c_str(), tensor.shape_string().c_str());
  }
}

}  // namespace

Result<int> run_inspect(const Options& options) {
  const auto checkpoint = TRY(open_checkpoint(options, TRY(take_model(options, 0)).model));
  json::object report{{"file", file_report(*checkpoint)}};
  const Result<ModelConfig> config = Model::read_config(*checkpoint);
  if (config.ok()) {
    report["model"] = describe_config(*config);
    const Result<FoundWeights> found = find_weights(*checkpoint, *config);
    if (found.ok()) {
      report["model"].as_object()["active_parameters"] = active_parameters(*config, *found);
    }
    const Result<json::object> memory = describe_memory(options, *checkpoint, *config);
    report["memory"] = memory.ok() ? *memory : json::object{{"error", memory.error().to_string()}};
  } else {
    report["model"] = json::object{{"error", config.error().to_string()}};
    report["memory"] = json::object();
  }
  report["text"] = describe_text(*checkpoint);
  if (options.flag("--json")) {
    if (options.flag("--tensors")) report["tensors"] = list_tensors(*checkpoint);
    std::printf("%s\n", json::serialize(report).c_str());
    return 0;
  }
  print_report(report);
  if (options.flag("--tensors")) print_tensors(*checkpoint);
  return 0;
}

}  // namespace headrace
