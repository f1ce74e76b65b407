#include "bench/serve/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "base/json.h"
#include "bench/serve/load_shape.h"

namespace headrace::loads {
namespace {

namespace json = boost::json;

constexpr std::string_view kWords[] = {
    "the",   "of",     "and",  "to",   "in",    "is",     "that",  "for",   "it",    "was",
    "on",    "are",    "as",   "with", "his",   "they",   "at",    "be",    "this",  "have",
    "from",  "or",     "one",  "had",  "by",    "word",   "but",   "not",   "what",  "all",
    "were",  "we",     "when", "your", "can",   "said",   "there", "use",   "an",    "each",
    "which", "she",    "do",   "how",  "their", "if",     "will",  "up",    "other", "about",
    "out",   "many",   "then", "them", "these", "so",     "some",  "her",   "would", "make",
    "like",  "him",    "into", "time", "has",   "look",   "two",   "more",  "write", "go",
    "see",   "number", "no",   "way",  "could", "people", "my",    "than",  "first", "water",
    "been",  "call",   "who",  "oil",  "its",   "now",    "find",  "long",  "down",  "day",
    "did",   "get",    "come", "made", "may",   "part",   "house", "river", "stone", "light",
};

// Lengths of recorded conversations are near log-normal.
constexpr Lengths kConversationPrompts = {Lengths::Kind::kLogNormal, 96, 1.25, 4096};
constexpr Lengths kConversationAnswers = {Lengths::Kind::kLogNormal, 180, 0.95, 2048};

Error no_such_lengths(std::string_view text, std::string_view option) {
  return make_error(ErrorCode::kInvalidArgument,
                    "{} is '{}', but it must be a number of tokens, fixed:TOKENS, "
                    "lognormal:MEDIAN,SIGMA or sharegpt",
                    option, text);
}

class TraceReader {
 public:
  TraceReader(std::string_view file, uint64_t seed) : file_(file), draws_(seed, 4) {}

  Status line(std::string_view text, size_t number) {
    number_ = number;
    const json::value value = TRY(parse_json(text, fmt::format("{}:{}", file_, number)));
    Ask ask;
    ask.due = TRY(number_of(value, "time"));
    if (*ask.due < last_) return wrong("time", "it is before that of the line before");
    last_ = *ask.due;
    ask.output_tokens = TRY(count_of(value, "output_tokens"));
    const json::value* prompt = json_member(&value, "prompt");
    if (prompt != nullptr && !prompt->is_string()) return wrong("prompt", "it must be a text");
    const std::string content = prompt != nullptr
                                    ? std::string(prompt->get_string())
                                    : words(draws_, TRY(count_of(value, "prompt_tokens")));
    ask.messages.push_back({"user", content});
    asks_.push_back(std::move(ask));
    return {};
  }
  std::vector<Ask> take() { return std::move(asks_); }

 private:
  Error wrong(std::string_view key, std::string_view reason) const {
    return make_error(ErrorCode::kCorrupt, "{}:{}: \"{}\": {}", file_, number_, key, reason);
  }
  Result<double> number_of(const json::value& value, std::string_view key) const {
    const json::value* member = json_member(&value, key);
    if (member == nullptr) return wrong(key, "it is missing");
    const double number = member->is_number() ? member->to_number<double>() : -1;
    if (!(number >= 0) || number > 1e9) return wrong(key, "it must be a number from 0 on");
    return number;
  }
  Result<int64_t> count_of(const json::value& value, std::string_view key) const {
    const double number = TRY(number_of(value, key));
    if (number < 1 || number > (1 << 20) || number != std::floor(number)) {
      return wrong(key, "it must be a whole number in 1..1048576");
    }
    return static_cast<int64_t>(number);
  }

  std::string_view file_;
  Draws draws_;
  size_t number_ = 0;
  double last_ = 0;
  std::vector<Ask> asks_;
};

}  // namespace

int64_t Lengths::draw(Draws& draws) const {
  const double value = kind == Kind::kFixed ? median : draws.log_normal(median, sigma);
  return std::clamp<int64_t>(std::llround(value), 1, most);
}

Result<Lengths> parse_lengths(std::string_view text, std::string_view option, bool is_answer) {
  if (text == "sharegpt") return is_answer ? kConversationAnswers : kConversationPrompts;
  constexpr std::string_view kFixed = "fixed:", kLogNormal = "lognormal:";
  Lengths lengths;
  std::string_view rest = text;
  if (rest.starts_with(kLogNormal)) {
    rest.remove_prefix(kLogNormal.size());
    const size_t comma = rest.find(',');
    const auto sigma = comma == rest.npos ? std::nullopt : positive_number(rest.substr(comma + 1));
    if (!sigma || *sigma > 4) return no_such_lengths(text, option);
    lengths.kind = Lengths::Kind::kLogNormal;
    lengths.sigma = *sigma;
    rest = rest.substr(0, comma);
  } else if (rest.starts_with(kFixed)) {
    rest.remove_prefix(kFixed.size());
  }
  const auto median = positive_number(rest);
  if (!median || *median < 1 || *median > static_cast<double>(lengths.most)) {
    return no_such_lengths(text, option);
  }
  lengths.median = *median;
  return lengths;
}

Result<Profile> parse_profile(std::string_view text) {
  constexpr std::string_view kNames[] = {"plain", "prefix", "agent"};
  const auto* found = std::ranges::find(kNames, text);
  if (found == std::end(kNames)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--profile is '{}', but it must be plain, prefix or agent", text);
  }
  return static_cast<Profile>(found - std::begin(kNames));
}

Result<std::vector<Ask>> parse_trace(std::string_view text, std::string_view file, uint64_t seed) {
  TraceReader reader(file, seed);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != line.npos) TRY(reader.line(line, number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::vector<Ask> asks = reader.take();
  if (asks.empty()) return make_error(ErrorCode::kCorrupt, "{} holds no requests", file);
  return asks;
}

std::string words(Draws& draws, int64_t num_tokens) {
  std::string text;
  for (int64_t i = 0; i < num_tokens; ++i) {
    if (i > 0) text += ' ';
    text += kWords[draws.below(std::size(kWords))];
  }
  return text;
}

Workload::Workload(const WorkloadOptions& options) : options_(options), draws_(options.seed, 2) {
  begin_stage(0);
}

Workload::Workload(std::vector<Ask> trace)
    : trace_(std::move(trace)), is_trace_(true), draws_(0, 2) {}

void Workload::begin_stage(uint64_t stage) {
  position_ = 0;
  sessions_.clear();
  draws_ = Draws(options_.seed + stage * 1000003, 2);
  if (!is_trace_) prefix_ = words(draws_, options_.prefix_tokens);
}

std::optional<Ask> Workload::next() {
  if (is_trace_) {
    if (position_ == trace_.size()) return std::nullopt;
    return trace_[position_++];
  }
  if (options_.profile == Profile::kAgent) return next_turn();
  const std::string own = words(draws_, options_.prompts.draw(draws_));
  const bool shared = options_.profile == Profile::kPrefix;
  return Ask{{{"user", shared ? prefix_ + ". " + own : own}},
             options_.answers.draw(draws_),
             std::nullopt,
             -1};
}

// A conversation that has its answer goes on; where all wait for one, another begins.
Ask Workload::next_turn() {
  const auto is_ready = [&](const Session& session) {
    return !session.waiting && session.turn < options_.turns;
  };
  auto found = std::ranges::find_if(sessions_, is_ready);
  if (found == sessions_.end()) {
    sessions_.push_back({{{"system", prefix_}}, 0, false});
    found = sessions_.end() - 1;
  }
  found->messages.push_back({"user", words(draws_, options_.prompts.draw(draws_))});
  found->waiting = true;
  ++found->turn;
  return {found->messages, options_.answers.draw(draws_), std::nullopt, found - sessions_.begin()};
}

void Workload::answered(int64_t session, std::string text) {
  if (session < 0) return;
  Session& found = sessions_[static_cast<size_t>(session)];
  found.waiting = false;
  if (text.empty()) found.turn = options_.turns;
  found.messages.push_back({"assistant", std::move(text)});
  if (found.turn >= options_.turns) found.messages.clear();
}

std::string request_body(const Ask& ask, const RequestForm& form) {
  json::object body;
  if (!form.model.empty()) body["model"] = form.model;
  if (form.chat) {
    json::array messages;
    for (const Message& message : ask.messages) {
      messages.push_back({{"role", message.role}, {"content", message.text}});
    }
    body["messages"] = std::move(messages);
  } else {
    std::string prompt;
    for (const Message& message : ask.messages) prompt += message.text + "\n";
    prompt.pop_back();
    body["prompt"] = prompt;
  }
  body["max_tokens"] = ask.output_tokens;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (form.ignore_eos) body["ignore_eos"] = true;
  return json::serialize(body);
}

}  // namespace headrace::loads
