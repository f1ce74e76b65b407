// token_scores: log-probs of tokens as JSON: each token an object with its bytes, and the most
// likely ones in its place beside it. What dialects name and order alike. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/api/generation.h"
#include "server/api/json_writer.h"
#include "text/tokenizer.h"

namespace headrace {

// JSON has no minus infinity: -9999 stands for it, as clients know.
float finite_logprob(float logprob);

// How a dialect shows a token.
struct ScoreForm {
  bool with_id = false;          // "id" first, and "bytes" before "logprob"
  bool omits_no_others = false;  // no "top_logprobs" where none were asked for
};

class ScoreWriter {
 public:
  // num_top: alternatives that were asked for; the tokenizer outlives the writer.
  ScoreWriter(const Tokenizer& tokenizer, int num_top, ScoreForm form = {});

  // One token more in the first list of the scores; one without log-probs is only counted.
  void add(const ScoredToken& token, ScoreText& scores) const;
  // Of the alternatives that there are, how many are shown.
  size_t num_shown(const TokenLogprobs& logprobs) const;

 private:
  void write_token(JsonWriter& json, int32_t id, float logprob) const;
  void write_others(JsonWriter& json, const TokenLogprobs& logprobs) const;

  const Tokenizer& tokenizer_;
  const size_t num_top_;
  const ScoreForm form_;
};

// A list of the scores as a member.
void write_score_list(JsonWriter& json, std::string_view name, const JsonWriter& list);

}  // namespace headrace
