// chat: a conversation with one model in the terminal, or with lines from a pipe.
#pragma once

#include <string>

#include "base/result.h"
#include "options.h"

namespace headrace {

// Until the person leaves. The exit status: 0, or 128 and the signal that ended it: SIGTERM, and at
// a pipe SIGINT. Options of `chat` or `run`.
Result<int> chat_with(const Options& options, const std::string& model, bool named);

}  // namespace headrace
