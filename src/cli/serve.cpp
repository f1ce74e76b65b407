// headrace serve MODEL: what a server is made of, in order: checkpoint, text, back end, model,
// engine, server.

#include <pthread.h>

#include <fmt/ranges.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <thread>

#include "base/log.h"
#include "cli/command.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "server/server.h"

namespace headrace {
namespace {

// Blocked in every thread from the start of the command, so that only the waiter below takes them.
sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Ends the server on the first signal: running requests may finish within the limit. A second
// signal ends the process at once. Runs on a thread of its own, detached: it only sleeps in
// sigwait.
void watch_signals(Server& server, std::chrono::seconds limit) {
  const sigset_t signals = stop_signals();
  int signal = 0;
  sigwait(&signals, &signal);
  LOG(kInfo, "stopping: running requests may finish within {} s; once more to stop now",
      limit.count());
  std::thread([signals] {
    int again = 0;
    sigwait(&signals, &again);
    std::_Exit(1);
  }).detach();
  server.drain(limit);
}

// Weights of the linear layers and the embeddings; norms and biases are not counted.
int64_t count_parameters(const ModelConfig& config) {
  int64_t count = config.vocab_size * config.hidden_size * (config.tie_word_embeddings ? 1 : 2);
  for (const LayerConfig& layer : config.layers) {
    const int64_t heads = 2 * (layer.num_attention_heads + layer.num_key_value_heads);
    count += config.hidden_size * (heads * layer.head_dim + 3 * layer.intermediate_size);
  }
  return count;
}

// Names everything that decides the bits of an answer: arithmetic, weights, and KV storage.
std::string fingerprint(const Runtime& runtime) {
  const std::string parts =
      fmt::format("{}\n{}\n{}", runtime.backend->numerics_id(), runtime.checkpoint->fingerprint(),
                  static_cast<int>(runtime.model->options().kv_type));
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(parts.data()), parts.size(), digest.data());
  return fmt::format("hr-{:02x}", fmt::join(std::span(digest).first(8), ""));
}

ModelInfo model_info(const Runtime& runtime, const std::string& name) {
  const ModelConfig& config = runtime.model->config();
  ModelInfo info;
  info.name = name;
  info.family = config.family;
  info.architecture = config.architecture;
  info.quantisation = config.source_dtype;
  std::map<std::string_view, int64_t> formats;
  for (const std::string& tensor : runtime.checkpoint->names()) {
    ++formats[dtype_name(runtime.checkpoint->find(tensor)->dtype)];
  }
  info.formats.assign(formats.begin(), formats.end());
  info.file = std::filesystem::path(runtime.checkpoint->path()).filename().string();
  info.num_parameters = count_parameters(config);
  info.weight_bytes = static_cast<int64_t>(runtime.checkpoint->file_bytes());
  info.vocab_size = config.vocab_size;
  info.isa = runtime.backend->isa();
  info.num_threads = runtime.backend->num_threads();
  info.numerics_id = fingerprint(runtime);
  return info;
}

// The name requests use: a pulled model's name as given, a path's file name without its ending.
std::string served_name(const std::string& spec) {
  if (spec.find('/') == std::string::npos && !spec.ends_with(".gguf")) return spec;
  const std::filesystem::path path(spec);
  return path.has_stem() ? path.stem().string() : path.parent_path().filename().string();
}

}  // namespace

Result<int> run_serve(const Options& options) {
  LogLevel level = LogLevel::kInfo;
  CHECK(parse_log_level(options.text("--log-level"), &level), "checked by the option table");
  set_log_level(level);
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto& given = options.positionals();
  const std::string spec = given.empty() ? options.text("--model") : given.front();
  Runtime runtime = TRY(open_engine(options, spec));

  ServerOptions serve;
  serve.host = options.text("--host");
  serve.port = static_cast<int>(options.integer("--port"));
  serve.num_http_threads = static_cast<int>(options.integer("--http-threads"));
  serve.aliases = split_commas(options.text("--alias"));
  const auto server = TRY(
      Server::create(*runtime.engine, runtime.text, model_info(runtime, served_name(spec)), serve));
  std::printf("listening on http://%s:%d\n", serve.host.c_str(), server->port());
  std::fflush(stdout);

  std::thread watcher(watch_signals, std::ref(*server),
                      std::chrono::seconds(options.integer("--drain-seconds")));
  server->run();
  watcher.join();
  return 0;
}

}  // namespace headrace
