#include "server/api/token_scores.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

constexpr float kImpossible = -9999.0f;

void write_bytes(JsonWriter& json, std::string_view bytes) {
  json.key("bytes").open_array();
  for (const char c : bytes) json.integer(static_cast<unsigned char>(c));
  json.close_array();
}

}  // namespace

float finite_logprob(float logprob) { return std::isfinite(logprob) ? logprob : kImpossible; }

ScoreWriter::ScoreWriter(const Tokenizer& tokenizer, int num_top, ScoreForm form)
    : tokenizer_(tokenizer), num_top_(static_cast<size_t>(std::max(num_top, 0))), form_(form) {}

size_t ScoreWriter::num_shown(const TokenLogprobs& logprobs) const {
  return std::min(num_top_, logprobs.top.size());
}

void ScoreWriter::write_token(JsonWriter& json, int32_t id, float logprob) const {
  const std::string bytes = tokenizer_.token_bytes(id, false);
  if (form_.with_id) json.integer("id", id);
  json.text("token", bytes);
  if (form_.with_id) write_bytes(json, bytes);
  json.key("logprob").number(finite_logprob(logprob));
  if (!form_.with_id) write_bytes(json, bytes);
}

void ScoreWriter::write_others(JsonWriter& json, const TokenLogprobs& logprobs) const {
  const size_t count = num_shown(logprobs);
  if (count == 0 && form_.omits_no_others) return;
  json.key("top_logprobs").open_array();
  for (size_t i = 0; i < count; ++i) {
    const auto& [id, logprob] = logprobs.top[i];
    json.open_object();
    write_token(json, id, logprob);
    json.close_object();
  }
  json.close_array();
}

void ScoreWriter::add(const ScoredToken& token, ScoreText& scores) const {
  ++scores.num_tokens;
  if (!token.logprobs) return;
  JsonWriter& json = scores.lists[0];
  json.open_object();
  write_token(json, token.id, token.logprobs->logprob);
  write_others(json, *token.logprobs);
  json.close_object();
}

void write_score_list(JsonWriter& json, std::string_view name, const JsonWriter& list) {
  json.key(name).open_array();
  if (!list.str().empty()) json.raw(list.str());
  json.close_array();
}

}  // namespace headrace
