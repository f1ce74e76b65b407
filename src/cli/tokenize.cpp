// headrace tokenize TEXT...: token ids of a text, or with --decode the text of ids.

#include <fmt/ranges.h>
#include <boost/json.hpp>

#include <charconv>
#include <cstdio>

#include "cli/command.h"
#include "cli/runtime.h"

namespace headrace {
namespace {

namespace json = boost::json;

Result<std::vector<int32_t>> parse_ids(const std::vector<std::string>& words) {
  std::vector<int32_t> ids;
  for (const std::string& word : words) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "'{}' is not a token id; with --decode every argument is a whole number",
                        word);
    }
    ids.push_back(id);
  }
  return ids;
}

void print_ids(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    const std::string token = tokenizer.id_to_token(id).value_or("");
    std::printf("%8d  %s\n", id, json::serialize(json::value(token)).c_str());
  }
  std::printf("%zu tokens\n", ids.size());
}

}  // namespace

Result<int> run_tokenize(const Options& options) {
  const auto checkpoint = TRY(open_checkpoint(options, options.text("--model")));
  const TextBundle text = TRY(TextBundle::load(*checkpoint));
  if (options.flag("--decode")) {
    const auto ids = TRY(parse_ids(options.positionals()));
    std::printf("%s\n", TRY(text.tokenizer->decode(ids, false)).c_str());
    return 0;
  }
  std::string words = fmt::format("{}", fmt::join(options.positionals(), " "));
  if (words == "-") words = TRY(read_text(words));
  const auto ids = TRY(text.tokenizer->encode(words, !options.flag("--no-special")));
  if (options.flag("--json")) {
    std::printf("%s\n", json::serialize(json::value_from(ids)).c_str());
  } else {
    print_ids(*text.tokenizer, ids);
  }
  return 0;
}

}  // namespace headrace
