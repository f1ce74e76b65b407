// Which model a command means: one rule for every command.
//
// The first argument, if it names a model (a checkpoint on disk, a name that `headrace pull` knows,
// hf:ORG/REPO, a URL of a checkpoint); else --model. Where --model is typed, no argument is a
// model.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "options.h"

namespace headrace {

struct ModelArgument {
  std::string model;
  bool named = false;              // typed, as an argument or with --model
  std::vector<std::string> words;  // the other arguments
};

// Of commands that also take free text. A word in the place of the model that is none but looks
// like one is refused (kInvalidArgument) with what was probably meant: it is not answered as text.
Result<ModelArgument> take_model_and_text(const Options& options);

// Of commands that take at most `max_others` other arguments, after the first `skipped`: one more
// is the model, whatever it looks like.
Result<ModelArgument> take_model(const Options& options, size_t max_others, size_t skipped = 0);

// Of a command all of whose arguments are models: those, or else the one of --model.
Result<std::vector<std::string>> take_models(const Options& options);

// The name of a model that `spec` may have been meant to be; empty: none.
std::string nearest_model(const std::string& spec);

}  // namespace headrace
