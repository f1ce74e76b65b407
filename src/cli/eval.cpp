// headrace eval perplexity|compare [MODEL] TEXT.

#include <unistd.h>
#include <boost/json.hpp>

#include <cmath>
#include <cstdio>

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "verify/comparison.h"
#include "verify/perplexity.h"

namespace headrace {
namespace {

namespace json = boost::json;

// A text as a model reads it.
struct EvalText {
  std::vector<int32_t> ids;
  PerplexityOptions windows;
};

Result<EvalText> tokenize_text(const Options& options, const Tokenizer& tokenizer,
                               const std::string& text) {
  EvalText read{TRY(tokenizer.encode(text, false)), {}};
  read.windows.window_tokens = options.integer("--window");
  read.windows.max_windows = options.integer("--windows");
  if (tokenizer.adds_bos()) read.windows.bos_id = tokenizer.bos_id();
  return read;
}

WindowVisitor visitor_of(ProgressBar& bar) {
  return [&bar](int64_t done, int64_t total, double) {
    bar.update(static_cast<size_t>(done), static_cast<size_t>(total));
  };
}

Status eval_perplexity(const Options& options, const std::string& model, const std::string& text) {
  Runtime runtime = TRY(open_runtime(options, model));
  const EvalText read = TRY(tokenize_text(options, *runtime.text.tokenizer, text));
  auto runner =
      TRY(SequenceRunner::create(*runtime.model, *runtime.backend, read.windows.window_tokens));
  ProgressBar bar("scoring windows", !is_terminal(STDERR_FILENO));
  const PerplexityResult result =
      TRY(measure_perplexity(runner, read.ids, read.windows, visitor_of(bar)));
  if (options.flag("--json")) {
    std::printf("%s\n",
                json::serialize(json::object{{"perplexity", result.perplexity},
                                             {"mean_nll", result.mean_nll},
                                             {"tokens_scored", result.num_scored},
                                             {"isa", runtime.backend->isa()},
                                             {"mean_nll_per_window",
                                              json::value_from(result.mean_nll_per_window)}})
                    .c_str());
  } else {
    std::printf(
        "perplexity %.4f (mean negative log-likelihood %.6f) over %s tokens in %s windows\n",
        result.perplexity, result.mean_nll, format_count(result.num_scored).c_str(),
        format_count(static_cast<int64_t>(result.mean_nll_per_window.size())).c_str());
  }
  return {};
}

// Both must mean the same by every id.
Status check_same_tokens(const Runtime& run, const Runtime& reference, const std::string& spec,
                         std::span<const int32_t> ids, const std::string& text) {
  const int64_t here = run.model->config().vocab_size;
  const int64_t there = reference.model->config().vocab_size;
  const auto ids_there = TRY(reference.text.tokenizer->encode(text, false));
  if (here == there && std::equal(ids.begin(), ids.end(), ids_there.begin(), ids_there.end())) {
    return {};
  }
  Error error = make_error(ErrorCode::kInvalidArgument,
                           "'{}' reads the text as {} tokens of {}, the model as {} of {}", spec,
                           ids_there.size(), there, ids.size(), here);
  error.hint = "only models with the same tokenizer can be compared";
  return error;
}

json::object comparison_json(const WindowComparison& window) {
  return {{"nll", window.nll},
          {"reference_nll", window.reference_nll},
          {"difference", window.difference},
          {"divergence", window.divergence},
          {"same_best", window.same_best}};
}

void print_comparison(const ComparisonResult& result, bool as_json) {
  const WindowComparison& mean = result.mean;
  const double perplexity = std::exp(mean.nll), reference = std::exp(mean.reference_nll);
  if (as_json) {
    json::object row = comparison_json(mean);
    row["perplexity"] = perplexity;
    row["reference_perplexity"] = reference;
    row["tokens_scored"] = result.num_scored;
    json::array& windows = row["windows"].emplace_array();
    for (const WindowComparison& window : result.windows) {
      windows.push_back(comparison_json(window));
    }
    std::printf("%s\n", json::serialize(row).c_str());
    return;
  }
  std::printf(
      "perplexity %.4f, of the reference %.4f, over %s tokens in %s windows\n"
      "mean |log-prob difference| %.6f, Kullback-Leibler divergence %.6f, same best token %.2f "
      "%%\n",
      perplexity, reference, format_count(result.num_scored).c_str(),
      format_count(std::ssize(result.windows)).c_str(), mean.difference, mean.divergence,
      100 * mean.same_best);
}

Status eval_compare(const Options& options, const std::string& model, const std::string& text) {
  const std::string& given = options.text("--reference");
  const std::string& spec = given.empty() ? model : given;
  const Options of_reference =
      options.with("--activations", options.text("--reference-activations"))
          .with("--kv-type", options.text("--reference-kv-type"));
  Runtime runtime = TRY(open_runtime(options, model));
  const EvalText read = TRY(tokenize_text(options, *runtime.text.tokenizer, text));
  Runtime other = TRY(open_runtime(of_reference, spec));
  TRY(check_same_tokens(runtime, other, spec, read.ids, text));
  const int64_t tokens = read.windows.window_tokens;
  auto run = TRY(SequenceRunner::create(*runtime.model, *runtime.backend, tokens));
  auto reference = TRY(SequenceRunner::create(*other.model, *other.backend, tokens));
  ProgressBar bar("comparing windows", !is_terminal(STDERR_FILENO));
  const ComparisonResult result =
      TRY(compare_runs(run, reference, read.ids, read.windows, visitor_of(bar)));
  print_comparison(result, options.flag("--json"));
  return {};
}

struct EvaluationRow {
  std::string_view name;
  Status (*run)(const Options& options, const std::string& model, const std::string& text);
};
constexpr EvaluationRow kEvaluations[] = {{"perplexity", eval_perplexity},
                                          {"compare", eval_compare}};

}  // namespace

Result<int> run_eval(const Options& options) {
  const std::string& name = options.positionals()[0];
  const auto* const row =
      std::find_if(std::begin(kEvaluations), std::end(kEvaluations),
                   [&](const EvaluationRow& each) { return each.name == name; });
  if (row == std::end(kEvaluations)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unknown evaluation '{}'; there are: perplexity, compare", name);
  }
  const ModelArgument given = TRY(take_model(options, 1, 1));
  if (given.words.empty()) {
    Error error = make_error(ErrorCode::kInvalidArgument, "the text file is missing");
    error.hint = fmt::format("usage: headrace eval {} [MODEL] TEXT", name);
    return error;
  }
  TRY(row->run(options, given.model, TRY(read_text(given.words.front()))));
  return 0;
}

}  // namespace headrace
