// headrace tokenize [MODEL] TEXT...: token ids of a text, or with --decode the text of ids.

#include <fmt/ranges.h>
#include <boost/json.hpp>

#include <charconv>
#include <cstdio>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/model_argument.h"
#include "cli/readable.h"
#include "cli/runtime.h"
#include "cli/terminal.h"

namespace headrace {
namespace {

namespace json = boost::json;

Result<std::vector<int32_t>> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at < end && std::string_view(" ,\t\r\n[]").find(*at) != std::string_view::npos) ++at;
    if (at == end) return ids;
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "'{}' is not a token id; with --decode every argument is a whole number",
                        std::string_view(at, end).substr(0, 40));
    }
    ids.push_back(id);
    at = next;
  }
}

// Ids and what each adds to the text, one per line.
void print_ids(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    std::printf("%8d  %s\n", id, readable_token(tokenizer, id).c_str());
  }
  std::printf("%s token%s\n", format_count(static_cast<int64_t>(ids.size())).c_str(),
              ids.size() == 1 ? "" : "s");
}

}  // namespace

Result<int> run_tokenize(const Options& options) {
  const ModelArgument given = TRY(take_model_and_text(options));
  std::string input = fmt::format("{}", fmt::join(given.words, " "));
  if (given.words.empty() || input == "-") input = TRY(read_input(false));
  const auto checkpoint = TRY(open_checkpoint(options, given.model));
  const TextBundle text = TRY(TextBundle::load(*checkpoint));
  if (options.flag("--decode")) {
    const std::string decoded = TRY(text.tokenizer->decode(TRY(parse_ids(input)), false));
    std::printf("%s\n", options.flag("--json") ? json::serialize(json::string(decoded)).c_str()
                                               : decoded.c_str());
    return 0;
  }
  TRY(check_text(input, "the text"));
  const auto ids = TRY(text.tokenizer->encode(input, !options.flag("--no-special")));
  if (options.flag("--json")) {
    std::printf("%s\n", json::serialize(json::value_from(ids)).c_str());
  } else {
    print_ids(*text.tokenizer, ids);
  }
  return 0;
}

}  // namespace headrace
