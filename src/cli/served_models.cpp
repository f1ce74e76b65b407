#include "cli/served_models.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <set>

#include "base/strings.h"
#include "checkpoint/hub/installed.h"
#include "engine/kv_sizing.h"
#include "engine/numerics.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMinRequestMemory = size_t{64} << 20;
constexpr size_t kMaxRequestMemory = size_t{1} << 30;

// Weights of the linear layers and the embeddings; norms and biases are not counted.
int64_t count_parameters(const ModelConfig& config) {
  int64_t count = config.vocab_size * config.hidden_size * (config.tie_word_embeddings ? 1 : 2);
  for (const LayerConfig& layer : config.layers) {
    const int64_t heads = 2 * (layer.num_attention_heads + layer.num_key_value_heads);
    count += config.hidden_size * (heads * layer.head_dim + 3 * layer.intermediate_size);
  }
  return count;
}

ModelInfo model_info(const Runtime& runtime, const std::string& name) {
  const ModelConfig& config = runtime.model->config();
  ModelInfo info;
  info.name = name;
  info.family = config.family;
  info.architecture = config.architecture;
  info.quantisation = config.source_dtype;
  info.formats = runtime.files.formats;
  info.file = fs::path(runtime.files.path).filename().string();
  info.num_parameters = count_parameters(config);
  info.weight_bytes = static_cast<int64_t>(runtime.files.num_bytes);
  info.vocab_size = config.vocab_size;
  info.hidden_size = config.hidden_size;
  info.isa = runtime.backend->isa();
  info.num_threads = runtime.backend->num_threads();
  info.numerics_id = numerics_id(*runtime.backend, runtime.model->options().kv_type);
  info.system_fingerprint = system_fingerprint(info.numerics_id, runtime.files.fingerprint);
  return info;
}

// A checkpoint in a folder of them: of a file in parts, the first.
bool is_checkpoint(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return fs::exists(path / "config.json", error);
  const std::string name = path.filename().string();
  const size_t part = name.find("-of-");
  const bool is_later_part = part != name.npos && part >= 6 && name.substr(part - 6, 6) != "-00001";
  return name.ends_with(".gguf") && !is_later_part;
}

size_t weight_bytes(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return fs::file_size(path, error);
  size_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".gguf")) bytes += entry.file_size(error);
  }
  return bytes;
}

FoundModel model_at(const std::string& name, const std::string& path) {
  return {name, path, weight_bytes(path)};
}

std::vector<FoundModel> models_in(const fs::path& folder) {
  std::vector<FoundModel> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!is_checkpoint(entry.path())) continue;
    const std::string path = entry.path().string();
    found.push_back(model_at(served_name(path), path));
  }
  std::sort(found.begin(), found.end(),
            [](const FoundModel& a, const FoundModel& b) { return a.name < b.name; });
  return found;
}

Result<std::vector<FoundModel>> find_element(const Options& options, const std::string& element) {
  std::vector<FoundModel> found;
  if (element == "store") {
    for (const InstalledModel& model : TRY(list_installed(options.text("--store")))) {
      found.push_back({model.name, model.path, model.num_bytes});
    }
    return found;
  }
  std::error_code error;
  if (fs::is_directory(element, error) && !is_checkpoint(element)) return models_in(element);
  found.push_back(model_at(served_name(element), TRY(find_model(options, element))));
  return found;
}

// The model outlives what it makes.
AdapterRegistry::Make adapter_maker(const Model& model) {
  return [&model](const AdapterFiles& files) { return model.load_adapter(files); };
}

Result<ModelPtr> load_model(const Options& options, const FoundModel& found,
                            const EngineSetup& setup) {
  auto runtime = std::make_shared<Runtime>(TRY(open_engine(options, found.path, setup)));
  ModelInfo info = model_info(*runtime, found.name);
  runtime->text.grammars->prepare();
  return ModelPtr(std::make_shared<ServedModel>(*runtime->engine, runtime->text, std::move(info),
                                                std::vector<std::string>(), runtime,
                                                adapter_maker(*runtime->model)));
}

ModelSource source_of(const Options& options, const FoundModel& found,
                      const std::shared_ptr<CpuTeam>& team, const TenantBook* tenants) {
  const auto load = [&options, found, team, tenants](const std::function<void(double)>& progress) {
    try {
      return load_model(options, found,
                        {.team = team,
                         .progress = progress,
                         .quiet = true,
                         .tenants = tenants,
                         .on_demand = true});
    } catch (const std::bad_alloc&) {
      return Result<ModelPtr>(make_error(ErrorCode::kExhausted, "the system has no more memory"));
    }
  };
  return {found.name, {}, found.num_bytes, load};
}

RegistryOptions registry_options(const Options& options) {
  RegistryOptions registry;
  const int64_t seconds = options.integer("--keep-alive");
  registry.keep_alive = std::chrono::seconds(seconds);
  registry.memory_bytes = options.bytes("--on-demand-memory");
  return registry;
}

// Events name no model: a router could not tell whose cache they are of.
Status check_kv_events(const KvEventSink* kv_events, size_t num_models) {
  if (kv_events == nullptr || num_models == 1) return {};
  Error error = make_error(ErrorCode::kInvalidArgument,
                           "--kv-events tells of the cache of one model, but {} are to be served",
                           num_models);
  error.hint = "start a server for each model";
  return error;
}

}  // namespace

size_t request_memory(const Options& options) {
  const size_t given = options.bytes("--request-memory");
  if (given > 0) return given;
  return std::clamp(available_memory_bytes() / 4, kMinRequestMemory, kMaxRequestMemory);
}

std::string served_name(const std::string& spec) {
  if (spec.find('/') == std::string::npos && !spec.ends_with(".gguf")) return spec;
  fs::path path(spec);
  if (!path.has_filename()) path = path.parent_path();
  path = path.filename();
  for (const std::string_view ending : {".gguf", ".safetensors"}) {
    if (path.extension() == ending) path = path.stem();
  }
  return path.string();
}

Result<std::vector<FoundModel>> find_on_demand(const Options& options) {
  std::vector<FoundModel> all;
  for (const std::string_view element : split_list(options.text("--on-demand"))) {
    for (FoundModel& found : TRY(find_element(options, std::string(element)))) {
      all.push_back(std::move(found));
    }
  }
  return all;
}

Result<ServedModels> open_served_models(const Options& options,
                                        const std::vector<std::string>& specs,
                                        KvEventSink* kv_events,
                                        std::vector<std::unique_ptr<Runtime>>& runtimes,
                                        std::shared_ptr<CpuTeam> team, const TenantBook* tenants) {
  const std::vector<FoundModel> on_demand = TRY(find_on_demand(options));
  TRY(check_kv_events(kv_events, specs.size() + on_demand.size()));
  if (team == nullptr) team = TRY(create_team(options));
  const auto aliases = split_list(options.text("--alias"));
  ServedModels served;
  served.options = registry_options(options);
  std::set<std::string> names;
  for (const std::string& spec : specs) {
    const std::string name = served_name(spec);
    if (!names.insert(name).second) {
      return make_error(ErrorCode::kInvalidArgument, "two models would be called '{}'", name);
    }
    EngineSetup setup{.team = team, .tenants = tenants};
    if (served.always.empty()) setup.kv_events = kv_events;
    runtimes.push_back(std::make_unique<Runtime>(TRY(open_engine(options, spec, setup))));
    const Runtime& runtime = *runtimes.back();
    std::vector<std::string> own;
    if (served.always.empty()) own.assign(aliases.begin(), aliases.end());
    served.always.push_back(std::make_shared<ServedModel>(*runtime.engine, runtime.text,
                                                          model_info(runtime, name), std::move(own),
                                                          nullptr, adapter_maker(*runtime.model)));
  }
  for (const FoundModel& found : on_demand) {
    if (names.insert(found.name).second) {
      served.on_demand.push_back(source_of(options, found, team, tenants));
    }
  }
  return served;
}

}  // namespace headrace
