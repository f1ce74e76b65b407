#include "cli/runtime.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <sstream>

#include "backend/cpu/cpu_backend.h"
#include "checkpoint/hub.h"
#include "cli/terminal.h"

namespace headrace {

Result<std::string> find_model(const Options& options, const std::string& spec) {
  return resolve_model(spec, options.text("--store"));
}

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const Options& options,
                                                    const std::string& spec) {
  return Checkpoint::open(TRY(find_model(options, spec)));
}

Result<std::unique_ptr<Backend>> create_backend(const Options& options) {
  CpuBackendOptions backend;
  backend.isa = options.text("--isa");
  backend.num_threads = static_cast<int>(options.integer("--threads"));
  if (options.text("--activations") == "int8") backend.activations = ActivationArithmetic::kInt8;
  return create_cpu_backend(backend);
}

KvType kv_type_from_options(const Options& options) {
  const auto* const name =
      std::find(std::begin(kKvTypeNames), std::end(kKvTypeNames), options.text("--kv-type"));
  CHECK(name != std::end(kKvTypeNames), "--kv-type {}", options.text("--kv-type"));
  return static_cast<KvType>(name - std::begin(kKvTypeNames));
}

ModelOptions model_options(const Options& options) {
  ModelOptions model;
  model.max_batch_tokens = static_cast<int>(options.integer("--batch-tokens"));
  model.kv_type = kv_type_from_options(options);
  if (options.command() != "inspect") {
    model.weight_cache = {options.text("--weight-cache"), options.bytes("--weight-cache-size"),
                          options.text("--weight-cache-check") == "content"};
  }
  if (options.command() == "serve") {  // each running sequence may need its row of logits
    model.max_logit_rows =
        std::max(model.max_logit_rows, static_cast<int>(options.integer("--max-sequences")));
  }
  return model;
}

Result<int64_t> context_from_options(const Options& options, const ModelConfig& config) {
  const int64_t wanted = options.integer("--context");
  const int64_t limit = config.max_position_embeddings;
  if (wanted > limit) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--context is {}, but this model was made for at most {} tokens", wanted,
                      limit);
  }
  return wanted > 0 ? wanted : std::min(limit, kDefaultContext);
}

Result<Runtime> open_runtime(const Options& options, const std::string& spec) {
  Runtime runtime;
  runtime.checkpoint = TRY(open_checkpoint(options, spec));
  // The text side and the weights need nothing of each other; each takes its time.
  auto text = std::async(std::launch::async, [&checkpoint = *runtime.checkpoint] {
    return TextBundle::load(checkpoint);
  });
  runtime.backend = TRY(create_backend(options));
  ProgressBar bar("loading " + spec, options.command() != "serve" || options.flag("--quiet"));
  runtime.model = TRY(Model::load(*runtime.checkpoint, *runtime.backend, model_options(options),
                                  [&](size_t done, size_t total) { bar.update(done, total); }));
  runtime.text = TRY(text.get());
  runtime.checkpoint->release_pages();
  return runtime;
}

Result<Runtime> open_engine(const Options& options, const std::string& spec) {
  Runtime runtime = TRY(open_runtime(options, spec));
  EngineOptions engine;
  engine.max_batch_tokens = static_cast<int>(options.integer("--batch-tokens"));
  engine.max_context = TRY(context_from_options(options, runtime.model->config()));
  engine.kv_memory_bytes = options.bytes("--kv-memory");
  if (options.command() == "serve") {
    engine.max_sequences = static_cast<int>(options.integer("--max-sequences"));
    engine.max_waiting = static_cast<int>(options.integer("--max-waiting"));
  } else {
    engine.max_sequences = 1;
  }
  runtime.engine =
      TRY(Engine::create(*runtime.model, *runtime.backend, engine, runtime.text.end_ids));
  return runtime;
}

Result<std::string> read_text(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
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
