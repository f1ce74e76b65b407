#include "checkpoint/hub/hub.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "checkpoint/hub/download.h"
#include "checkpoint/hub/package.h"
#include "checkpoint/hub/repository.h"
#include "checkpoint/hub/store.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name, std::string fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? std::string(value) : std::move(fallback);
}

std::string store_of(const std::string& store_dir) {
  return store_dir.empty() ? default_store_dir() : store_dir;
}

bool is_whole(const hub::Spec& spec, const std::string& path) {
  std::error_code ignored;
  if (spec.kind != hub::SpecKind::kNamed) return fs::exists(path, ignored);
  return hub::file_size_or_zero(path) == spec.named->num_bytes;
}

Status check_endpoint(const std::string& endpoint) {
  if (endpoint.starts_with("https://") || endpoint.starts_with("http://")) return {};
  Error error = make_error(ErrorCode::kInvalidArgument,
                           "the hub's address '{}' is not an http(s) URL", endpoint);
  error.hint = "set HF_ENDPOINT to one, or unset it";
  return error;
}

Status pull_url(const hub::Spec& spec, const PullOptions& options, const std::string& target) {
  hub::DownloadRequest request;
  request.url = spec.url;
  request.path = target;
  request.progress = options.progress;
  request.retry = {options.max_attempts, options.backoff_ms, options.stall_seconds};
  request.stopped = options.stopped;
  return hub::download(request);
}

Status pull_into(const hub::Spec& spec, const PullOptions& options, const std::string& target) {
  switch (spec.kind) {
    case hub::SpecKind::kNamed:
      return hub::pull_packages(*spec.named, options, target + ".incoming", target);
    case hub::SpecKind::kRepository:
      return hub::pull_repository(spec, options, target);
    case hub::SpecKind::kUrl:
      return pull_url(spec, options, target);
  }
  return make_error(ErrorCode::kInternal, "unknown kind of model name");
}

}  // namespace

PullOptions pull_options_from_environment(std::string spec) {
  PullOptions options;
  options.spec = std::move(spec);
  options.endpoint = environment("HF_ENDPOINT", options.endpoint);
  options.token = environment("HF_TOKEN", "");
  options.python = environment("HEADRACE_PYTHON", options.python);
  return options;
}

std::string default_store_dir() {
  const std::string home = environment("HEADRACE_HOME", "");
  if (!home.empty()) return home + "/models";
  const std::string cache = environment("XDG_CACHE_HOME", environment("HOME", "") + "/.cache");
  return cache + "/headrace/models";
}

Result<PulledModel> pull(const PullOptions& given) {
  const hub::Spec spec = TRY(hub::parse_spec(given.spec));
  PullOptions options = given;
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  if (spec.kind == hub::SpecKind::kRepository) TRY(check_endpoint(options.endpoint));
  const std::string target = store_of(options.store_dir) + "/" + spec.place;
  if (is_whole(spec, target)) return PulledModel{options.spec, target, true};
  const hub::StoreLock lock = TRY(hub::StoreLock::acquire(store_of(options.store_dir) + "/.locks/" +
                                                          hub::flattened(spec.place)));
  if (is_whole(spec, target)) return PulledModel{options.spec, target, true};
  TRY(hub::make_folder(fs::path(target).parent_path()));
  TRY(pull_into(spec, options, target));
  return PulledModel{options.spec, target, false};
}

Result<std::string> resolve_model(const std::string& text, const std::string& store_dir) {
  std::error_code ignored;
  if (fs::exists(text, ignored)) return text;
  if (text.starts_with("url/") && hub::is_safe_path(text)) {  // as list_installed() names it
    const std::string path = store_of(store_dir) + "/" + text;
    if (fs::exists(path, ignored)) return path;
  }
  const auto spec = hub::parse_spec(text);
  if (!spec.ok()) {
    Error error = make_error(ErrorCode::kNotFound,
                             "there is no file or folder '{}', and no model of that name", text);
    error.hint = spec.error().hint;
    return error;
  }
  const std::string path = store_of(store_dir) + "/" + spec->place;
  if (is_whole(*spec, path)) return path;
  Error error = make_error(ErrorCode::kNotFound, "'{}' is not in the model folder '{}'", text,
                           store_of(store_dir));
  error.hint = fmt::format("run: headrace pull {}", text);
  return error;
}

}  // namespace headrace
