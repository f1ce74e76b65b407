// headrace eval perplexity [MODEL] TEXT.

#include <unistd.h>
#include <boost/json.hpp>

#include <cstdio>

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "verify/perplexity.h"

namespace headrace {

Result<int> run_eval(const Options& options) {
  const auto& arguments = options.positionals();
  if (arguments[0] != "perplexity") {
    return make_error(ErrorCode::kInvalidArgument, "unknown evaluation '{}'; there is: perplexity",
                      arguments[0]);
  }
  const ModelArgument given = TRY(take_model(options, 1, 1));
  if (given.words.empty()) {
    Error error = make_error(ErrorCode::kInvalidArgument, "the text file is missing");
    error.hint = "usage: headrace eval perplexity [MODEL] TEXT";
    return error;
  }
  const std::string text = TRY(read_text(given.words.front()));
  Runtime runtime = TRY(open_runtime(options, given.model));
  const auto ids = TRY(runtime.text.tokenizer->encode(text, false));
  PerplexityOptions windows;
  windows.window_tokens = options.integer("--window");
  windows.max_windows = options.integer("--windows");
  if (runtime.text.tokenizer->adds_bos()) windows.bos_id = runtime.text.tokenizer->bos_id();
  auto runner =
      TRY(SequenceRunner::create(*runtime.model, *runtime.backend, windows.window_tokens));
  ProgressBar bar("scoring windows", !is_terminal(STDERR_FILENO));
  const PerplexityResult result =
      TRY(measure_perplexity(runner, ids, windows, [&](int64_t done, int64_t total, double) {
        bar.update(static_cast<size_t>(done), static_cast<size_t>(total));
      }));
  if (options.flag("--json")) {
    std::printf("%s\n",
                boost::json::serialize(
                    boost::json::object{{"perplexity", result.perplexity},
                                        {"mean_nll", result.mean_nll},
                                        {"tokens_scored", result.num_scored},
                                        {"isa", runtime.backend->isa()},
                                        {"mean_nll_per_window",
                                         boost::json::value_from(result.mean_nll_per_window)}})
                    .c_str());
  } else {
    std::printf(
        "perplexity %.4f (mean negative log-likelihood %.6f) over %s tokens in %s windows\n",
        result.perplexity, result.mean_nll, format_count(result.num_scored).c_str(),
        format_count(static_cast<int64_t>(result.mean_nll_per_window.size())).c_str());
  }
  return 0;
}

}  // namespace headrace
