#include "cli/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/team/topology.h"
#include "backend/timed_backend.h"
#include "base/dtype.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/hub/store.h"
#include "cli/model_argument.h"
#include "cli/serve_operation.h"
#include "cli/terminal.h"
#include "model/mixers.h"

namespace headrace {

Result<std::string> find_model(const Options& options, const std::string& spec) {
  Result<std::string> found = resolve_model(spec, options.text("--store"));
  if (found.ok() || hub::parse_spec(spec).ok()) return found;
  Error error = std::move(found).error();
  const std::string near = nearest_model(spec);
  if (!near.empty()) error.message += fmt::format("; did you mean {}?", near);
  return error;
}

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const Options& options,
                                                    const std::string& spec) {
  return Checkpoint::open(TRY(find_model(options, spec)));
}

namespace {

int num_threads_from_options(const Options& options) {
  const auto most = static_cast<int>(cpu::usable_cores().size());
  const auto wanted = static_cast<int>(options.integer("--threads"));
  if (wanted <= most) return wanted;
  LOG(kWarning, "--threads is {}, but affinity and cgroup quota allow {}: using {}", wanted, most,
      most);
  return most;
}

}  // namespace

Result<std::shared_ptr<CpuTeam>> create_team(const Options& options) {
  return create_cpu_team(num_threads_from_options(options));
}

Result<std::unique_ptr<Backend>> create_backend(const Options& options,
                                                std::shared_ptr<CpuTeam> team) {
  CpuBackendOptions backend;
  backend.isa = options.text("--isa");
  backend.num_threads = team == nullptr ? num_threads_from_options(options) : 0;
  backend.team = std::move(team);
  backend.activations = activations_from_options(options);
  return std::unique_ptr<Backend>(std::make_unique<TimedBackend>(TRY(create_cpu_backend(backend))));
}

// int8 is what fast was called while it took 8 bits everywhere.
ActivationArithmetic activations_from_options(const Options& options) {
  return options.text("--activations") == "exact" ? ActivationArithmetic::kExact
                                                  : ActivationArithmetic::kFast;
}

KvType kv_type_from_options(const Options& options, KvType automatic) {
  if (options.text("--kv-type") == "auto") return automatic;
  const std::optional<KvType> type = kv_type_of(options.text("--kv-type"));
  CHECK(type.has_value(), "--kv-type {}", options.text("--kv-type"));
  return *type;
}

namespace {

int max_sequences(const Options& options) {
  if (options.command() == "serve") return static_cast<int>(options.integer("--max-sequences"));
  return options.command() == "profile" ? static_cast<int>(options.integer("--batch")) : 1;
}

}  // namespace

namespace {

// Whether guesses shall be those of the model's own head, if it has one. Of the commands without an
// engine, those that say what one would need count it.
bool wants_head(const Options& options) {
  const std::string& command = options.command();
  if (command == "inspect" || command == "show") return true;
  if (command != "serve" && command != "run" && command != "chat") return false;
  const bool is_default = !options.is_set("--speculation");
  if (is_default && !options.text("--draft-model").empty()) return false;
  return options.text("--speculation").find("mtp") != std::string::npos;
}

}  // namespace

ModelOptions model_options(const Options& options, const Backend& backend) {
  ModelOptions model;
  model.max_batch_tokens = static_cast<int>(options.integer("--batch-tokens"));
  model.kv_type = kv_type_from_options(options, backend.default_kv_type());
  model.prediction = wants_head(options);
  if (options.command() != "inspect" && options.command() != "show") {
    model.weight_cache = {options.text("--weight-cache"), options.bytes("--weight-cache-size"),
                          options.text("--weight-cache-check") == "content"};
  }
  // Each running sequence may need its row of logits.
  model.max_logit_rows = std::max(model.max_logit_rows, max_sequences(options));
  return model;
}

namespace {

// --context, or what the model was made for where that is less.
int64_t most_context(const Options& options, const ModelConfig& config) {
  const int64_t wanted = options.integer("--context");
  return std::min<int64_t>(config.max_position_embeddings, wanted > 0 ? wanted : kDefaultContext);
}

// Whether a head for further tokens that cannot be used is an error.
bool needs_head(const Options& options, const EngineSetup& setup) {
  return options.is_set("--speculation") && !setup.on_demand;
}

}  // namespace

Result<int64_t> context_from_options(const Options& options, const ModelConfig& config) {
  const int64_t wanted = options.integer("--context");
  const int64_t limit = config.max_position_embeddings;
  if (wanted > limit) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--context is {}, but this model was made for at most {} tokens", wanted,
                      limit);
  }
  return most_context(options, config);
}

ContentTokens content_tokens_from_options(const Options& options) {
  const std::string& command = options.command();
  const bool scores = command == "eval" || command == "verify" || command == "profile";
  const bool plain = !scores && options.text("--content-tokens") == "plain";
  return plain ? ContentTokens::kPlain : ContentTokens::kSpecial;
}

namespace {

// A server's log gets lines too; the other commands, whose output is wanted, only a bar that goes.
bool shows_progress(const Options& options) {
  const std::string& command = options.command();
  if (command != "serve" && command != "run" && command != "chat") return false;
  return !options.flag("--quiet") && (command == "serve" || has_cursor(STDERR_FILENO));
}

LoadedFiles describe_files(const Checkpoint& checkpoint) {
  std::map<std::string, int64_t> formats;
  for (const std::string& tensor : checkpoint.names()) {
    ++formats[std::string(dtype_name(checkpoint.find(tensor)->dtype))];
  }
  return {checkpoint.path(),
          checkpoint.file_bytes(),
          checkpoint.fingerprint(),
          {formats.begin(), formats.end()}};
}

// Names weights and configuration: all bytes are read once.
std::string content_of(const Checkpoint& checkpoint) {
  if (checkpoint.files().empty()) return {};
  const int num_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const FileDigest content = content_digest(checkpoint.files(), num_threads);
  const FileDigest config = sha256(checkpoint.sidecar("config.json").value_or(""));
  std::string hex = checkpoint.fingerprint() + " ";
  for (const FileDigest& digest : {content, config}) {
    for (const std::byte byte : std::span(digest).first<16>()) {
      hex += fmt::format("{:02x}", std::to_integer<int>(byte));
    }
  }
  return hex;
}

Error no_head(const Checkpoint& checkpoint, std::string_view reason) {
  Error error =
      make_error(ErrorCode::kInvalidArgument,
                 "--speculation names mtp, but {} has no head for further tokens that can "
                 "be used: {}",
                 checkpoint.path(), reason);
  error.hint = "leave mtp out";
  return error;
}

// Why the head that the configuration has or names cannot be used; empty: it can.
std::string lack_of_head(const ModelConfig& config) {
  if (config.prediction.empty()) {
    return config.num_nextn_predict_layers > 0
               ? "the configuration names one, whose tensors are not there"
               : "there is none";
  }
  return {};
}

// The head for further tokens is loaded if it can be used and memory allows; whoever asks for it is
// told why not.
Status choose_head(bool is_asked_for, const Checkpoint& checkpoint, const Backend& backend,
                   size_t kv_memory_bytes, ModelOptions* model) {
  if (!model->prediction) return {};
  const ModelConfig config = TRY(Model::read_config(checkpoint));
  const std::string lack = lack_of_head(config);
  if (!lack.empty() && is_asked_for) return no_head(checkpoint, lack);
  model->prediction = lack.empty();
  if (!lack.empty()) {
    if (config.num_nextn_predict_layers > 0 || !config.prediction.empty()) {
      LOG(kInfo, "no guesses of a head for further tokens: {}", lack);
    }
    return {};
  }
  const MemoryPlan plan = TRY(Model::memory_plan(checkpoint, config, backend, *model));
  const Status fits = check_memory(plan, kv_memory_bytes, memory_supply());
  if (fits.ok() || is_asked_for) return fits;
  model->prediction = false;
  LOG(kInfo, "the head for further tokens is left out, as memory is short");
  return {};
}

// Into the runtime; kv_memory_bytes as in check_memory().
Status load_parts(const Options& options, const std::string& spec, const Checkpoint& checkpoint,
                  size_t kv_memory_bytes, const EngineSetup& setup, Runtime* runtime) {
  runtime->backend = TRY(create_backend(options, setup.team));
  ModelOptions model = model_options(options, *runtime->backend);
  const bool has_to_guess = needs_head(options, setup);
  TRY(choose_head(has_to_guess, checkpoint, *runtime->backend, kv_memory_bytes, &model));
  const MemoryPlan plan = TRY(Model::memory_plan(checkpoint, *runtime->backend, model));
  TRY(check_memory(plan, kv_memory_bytes, memory_supply()));
  // The text side and the weights need nothing of each other; each takes its time.
  const ContentTokens content_tokens = content_tokens_from_options(options);
  auto text = std::async(std::launch::async, [&checkpoint, content_tokens] {
    return TextBundle::load(checkpoint, content_tokens);
  });
  ProgressBar bar("loading " + spec, setup.quiet || !shows_progress(options));
  auto loaded = Model::load(checkpoint, *runtime->backend, model, [&](size_t done, size_t total) {
    bar.update(done, total);
    if (setup.progress) setup.progress(static_cast<double>(done) / static_cast<double>(total));
  });
  Result<TextBundle> bundle = text.get();
  runtime->model = TRY(std::move(loaded));
  if (model.prediction && has_to_guess && runtime->model->prediction() == nullptr) {
    return no_head(checkpoint, "a part of it is missing");
  }
  runtime->text = TRY(std::move(bundle));
  if (options.command() == "serve") {
    TRY(runtime->text.use_formats(options.text("--tool-format"),
                                  options.text("--reasoning-format")));
    const std::string& ids = options.text("--embedding-ids");
    if (!ids.empty()) {
      runtime->text.input_tokenizer = TRY(Tokenizer::from_json(TRY(read_text(ids))));
    }
  }
  return {};
}

Result<Runtime> load_runtime(const Options& options, const std::string& spec,
                             size_t kv_memory_bytes, const EngineSetup& setup = {}) {
  const auto checkpoint = TRY(open_checkpoint(options, spec));
  Runtime runtime;
  const Status loaded = load_parts(options, spec, *checkpoint, kv_memory_bytes, setup, &runtime);
  const bool keeps_kv = options.command() == "serve" && !options.text("--kv-disk").empty();
  const std::string content = loaded.ok() && keeps_kv ? content_of(*checkpoint) : "";
  TRY(checkpoint->check_unchanged());  // the cause, where both failed
  if (!loaded.ok()) return loaded.error();
  runtime.files = describe_files(*checkpoint);
  runtime.files.content = content;
  return runtime;
}

}  // namespace

Result<Runtime> open_runtime(const Options& options, const std::string& spec) {
  return load_runtime(options, spec, 0);
}

namespace {

// Both models must mean the same by every id that both have.
Status check_vocabularies(const Tokenizer& large, const Tokenizer& draft, const std::string& spec) {
  for (int32_t id = 0; id < std::min(large.vocab_size(), draft.vocab_size()); ++id) {
    const auto there = draft.id_to_token(id), here = large.id_to_token(id);
    if (there == here) continue;
    Error error =
        make_error(ErrorCode::kInvalidArgument,
                   "--draft-model is '{}', but its vocabulary is another one: token {} is "
                   "'{}' there and '{}' in the model that it is to guess for",
                   spec, id, there.value_or(""), here.value_or(""));
    error.hint = "choose a smaller model of the same family";
    return error;
  }
  return {};
}

// The same of a draft that is not loaded.
Status check_vocabulary_of(const Options& options, const std::string& spec,
                           const Tokenizer& large) {
  const auto checkpoint = TRY(open_checkpoint(options, spec));
  const TextBundle text = TRY(TextBundle::load(*checkpoint, content_tokens_from_options(options)));
  return check_vocabularies(large, *text.tokenizer, spec);
}

Result<SpeculationOptions> open_speculation(const Options& options, const std::string& spec,
                                            const EngineSetup& setup, Runtime* runtime) {
  SpeculationOptions speculation;
  const std::string& draft = options.text("--draft-model");
  const std::string& who = options.text("--speculation");
  speculation.text = who.find("ngram") != who.npos;
  speculation.head = runtime->model->prediction() != nullptr;
  const bool has_draft =
      who.find("draft") != who.npos || (!draft.empty() && !options.is_set("--speculation"));
  if (has_draft && draft.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--speculation is {}, which needs --draft-model, a smaller model", who);
  }
  if (!has_draft) return speculation;
  if (setup.on_demand) {
    const Status fits = check_vocabulary_of(options, draft, *runtime->text.tokenizer);
    if (!fits.ok()) {
      LOG(kInfo, "no model guesses for {}: {}", spec, fits.error().message);
      return speculation;
    }
  }
  runtime->draft = std::make_unique<Runtime>(TRY(load_runtime(options, draft, 0, setup)));
  TRY(check_vocabularies(*runtime->text.tokenizer, *runtime->draft->text.tokenizer, draft));
  speculation.draft_model = runtime->draft->model.get();
  speculation.draft_backend = runtime->draft->backend.get();
  LOG(kInfo, "{} guesses for {}", draft, spec);
  return speculation;
}

}  // namespace

Result<Runtime> open_engine(const Options& options, const std::string& spec,
                            const EngineSetup& given) {
  EngineSetup setup = given;
  if (setup.team == nullptr) setup.team = TRY(create_team(options));
  Runtime runtime = TRY(load_runtime(options, spec, options.bytes("--kv-memory"), setup));
  EngineOptions engine;
  engine.max_batch_tokens = static_cast<int>(options.integer("--batch-tokens"));
  const ModelConfig& config = runtime.model->config();
  engine.max_context =
      setup.on_demand ? most_context(options, config) : TRY(context_from_options(options, config));
  engine.kv_memory_bytes = options.bytes("--kv-memory");
  engine.kv_events = setup.kv_events;
  engine.tenants = setup.tenants;
  engine.max_sequences = max_sequences(options);
  if (options.command() != "profile") {
    engine.speculation = TRY(open_speculation(options, spec, setup, &runtime));
  }
  if (options.command() == "serve") {
    engine.max_waiting = static_cast<int>(options.integer("--max-waiting"));
    engine.max_prompt_tokens = options.integer("--max-prompt-tokens");
    engine.step_deadline = std::chrono::seconds(options.integer("--step-deadline"));
    engine.on_hang = end_hung_server;
    engine.inter_token_target = std::chrono::milliseconds(options.integer("--inter-token-target"));
    engine.kv_ram_bytes = options.bytes("--kv-ram");
    engine.kv_disk_folder = options.text("--kv-disk");
    engine.kv_disk_bytes = options.bytes("--kv-disk-size");
    engine.model_digest = runtime.files.content;
  }
  runtime.engine =
      TRY(Engine::create(*runtime.model, *runtime.backend, engine, runtime.text.end_ids));
  return runtime;
}

Result<std::string> read_text(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {  // it would open, and read as empty
    Error error =
        make_error(ErrorCode::kInvalidArgument,
                   "cannot read '{}': it is a folder, needed is a regular file or a pipe", path);
    error.hint = "name a file in it";
    return error;
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return make_error(ErrorCode::kNotFound, "cannot open '{}': {}", path, std::strerror(errno));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace headrace
