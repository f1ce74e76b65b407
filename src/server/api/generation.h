// generation: what is asked of the model and what comes back, in no client's language.
//
// A dialect (dialect.h) parses a body to a GenerationRequest and renders its answer; all between,
// sessions, budgets, admission and the log of requests, knows only these types. The request's
// prompts are read by prompt.h, the same way for every dialect. Plain values, owned by whoever
// holds them; no library of JSON or sockets, so that a simulation can drive a session.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_budget.h"
#include "engine/request.h"
#include "server/api/answer_form.h"
#include "server/api/json_writer.h"
#include "server/api/line_watch.h"
#include "server/api/parts/output_part.h"
#include "server/http/http.h"

namespace headrace {

struct Dialect;

struct Prompt {
  std::vector<int32_t> ids;
  std::string echo_text;         // what `echo` repeats; empty without it
  bool opens_reasoning = false;  // it ends within reasoning
};

// Why a choice ended.
struct Finish {
  enum class Kind : uint8_t { kNone, kEnd, kStopString, kLength, kToolCalls, kRepetition };
  Kind kind = Kind::kNone;
  std::string stop;  // kStopString: which
};

struct GenerationRequest {
  std::vector<Prompt> prompts;  // at least one, once they are read
  int num_choices = 1;          // per prompt; each draws by its own index, or comes of one search
  int num_best = 0;             // of these, by mean log-prob, that are the answer; 0: all
  Request prototype;            // everything but the prompt; max_tokens before clamping
  bool has_max_tokens = false;  // the client chose it
  std::vector<std::string> stop;
  bool include_stop = false;  // the stop string is part of the text
  bool skip_special = true;
  bool stream = false;
  bool echo = false;           // the answer begins with the prompt
  bool only_computes = false;  // the prompt, for the cache: the answer is empty
  LineRules lines;
  std::string cache_salt;  // prompts share cached work only with prompts of the same salt
  AnswerForm form;
  // Made of the form, one for each choice. Null: all is text; null: any token may come.
  std::function<std::unique_ptr<PartParser>(const Prompt&)> make_parser;
  std::function<std::shared_ptr<Constraint>()> make_constraint;
  // Puts what concerns reasoning before what make_constraint made, maybe null. May be empty.
  std::function<std::shared_ptr<Constraint>(const Prompt&, std::shared_ptr<Constraint>)> gate;
  HttpHeaders headers;            // of a good answer
  ByteBudget::Lease memory = {};  // holds the prompts and their scores

  size_t total_choices() const { return prompts.size() * static_cast<size_t>(num_choices); }
  // The choices of a prompt are what one beam search finds.
  bool is_search() const { return prototype.beams.width > 0; }
  // Nothing is to be computed: the answer is the prompt.
  bool only_echoes() const {
    return prototype.max_tokens == 0 && !prototype.num_prompt_logprobs.has_value() &&
           !only_computes;
  }
  // The request of one choice: prompt, index, and max_tokens within the context.
  Request engine_request(size_t choice_idx, int64_t max_context) const;
};

// Bytes of one token's log-probs with this many alternatives, as they are written: an estimate
// from above for tokens of up to 8 bytes.
size_t score_bytes(int num_alternatives);

struct ScoredToken {
  int32_t id = -1;
  std::optional<TokenLogprobs> logprobs;  // nothing: the first token of a prompt
  int64_t text_offset = 0;                // characters before it in the choice's text
  bool may_be_text = true;                // it came in no reasoning and no call
};

// Log-probs of consecutive tokens as the dialect writes them: the contents of its lists. Written
// token by token as they come, so that no answer has to be written in one go.
struct ScoreText {
  std::array<JsonWriter, 4> lists;
  size_t num_tokens = 0;

  size_t bytes() const;
};

// A part of one choice's answer: one chunk of a stream, or the whole choice.
struct ChoiceDelta {
  size_t choice_idx = 0;
  std::vector<OutputPart> parts;  // neighbours are of different kinds, or different calls
  ScoreText scores;               // of the tokens in the parts, if log-probs were asked for
  Finish finish;                  // kind kNone: the choice goes on

  void add(OutputPart part);
  size_t bytes() const;  // of the parts
  // The text of all parts of a kind that has one.
  std::string text_of(OutputPart::Kind kind) const;
};

// What an answer took, all choices together.
struct AnswerEnd {
  Usage usage;
  RequestTimes times;  // of its first choice
};

// Writes one answer in its dialect. One per answer; one thread at a time.
class AnswerRenderer {
 public:
  virtual ~AnswerRenderer() = default;
  virtual const Dialect& dialect() const = 0;
  virtual const std::string& id() const = 0;  // for the log: "chatcmpl-..."
  virtual void add_score(const ScoredToken& token, ScoreText& scores) = 0;
  // The ids of the first choice: its prompt before all else, then each token before its text. For
  // dialects that show ids.
  virtual void see_prompt(std::span<const int32_t> /*ids*/) {}
  virtual void see_token(int32_t /*id*/) {}

  // A stream: begin, chunks of the choices as they come, and one end or one error. Bytes with their
  // framing; empty: the dialect says nothing there.
  virtual std::string begin_stream(const Usage& /*prompts*/) { return {}; }
  virtual std::string chunk(const ChoiceDelta& delta, const Usage& so_far) = 0;
  virtual std::string end_stream(const AnswerEnd& end) = 0;
  virtual std::string stream_error(const Error& error) = 0;

  // A whole answer: begin, each choice in order, end. Before them, each piece of a choice but the
  // last, as a stream's chunks have it; true: the renderer has taken it, and the choice is the
  // rest.
  virtual bool add_piece(const ChoiceDelta& /*piece*/) { return false; }
  virtual void begin_whole(JsonWriter& json) = 0;
  virtual void add_choice(const ChoiceDelta& choice, JsonWriter& json) = 0;
  virtual void end_whole(const AnswerEnd& end, JsonWriter& json) = 0;
};

}  // namespace headrace
