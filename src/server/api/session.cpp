#include "server/api/session.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "server/api/cache_miss.h"
#include "server/api/dialect.h"
#include "server/api/text_position.h"

namespace headrace {
namespace {

constexpr size_t kContextTokens = 16;  // of the prompt, so that the first token joins correctly
// What one turn on the I/O thread does at most: well under a millisecond.
constexpr size_t kEventsPerTurn = 32;
constexpr size_t kEventsKept = 16;  // of an answer that is sent whole, until there are more
constexpr size_t kScoresPerTurn = 64;
constexpr size_t kFoundPerTurn = 64;  // tokens of what a search has found
constexpr size_t kBytesPerTurn = 256 * 1024;

std::vector<int32_t> last_tokens(const std::vector<int32_t>& ids) {
  const size_t count = std::min(ids.size(), kContextTokens);
  return {ids.end() - static_cast<int64_t>(count), ids.end()};
}

// Of an event that waits. Ends are few, and the log-probs of prompts were counted at the start.
size_t event_bytes(const Event& event) {
  if (event.kind == Event::Kind::kFinished) return 0;
  const size_t num_top = event.logprobs ? event.logprobs->top.size() : 0;
  return sizeof(Event) + sizeof(size_t) + num_top * sizeof(std::pair<int32_t, float>);
}

std::string_view log_name(Finish::Kind kind) {
  switch (kind) {
    case Finish::Kind::kLength:
      return "length";
    case Finish::Kind::kToolCalls:
      return "tool_calls";
    case Finish::Kind::kRepetition:
      return "repetition";
    default:
      return "stop";
  }
}

bool has_call(const ChoiceDelta& delta) {
  return std::any_of(delta.parts.begin(), delta.parts.end(), [](const OutputPart& part) {
    return part.kind == OutputPart::Kind::kToolCall;
  });
}

Error no_memory() {
  return Error{ErrorCode::kExhausted,
               "the answer needs more memory than is left for answers, so it was ended early",
               "ask for fewer choices or log-probs, or try again later",
               {}};
}

}  // namespace

Error ended_by_shutdown() {
  return make_error(ErrorCode::kUnavailable,
                    "the answer was ended early because the server is shutting down");
}

Error ended_by_administrator() {
  return make_error(ErrorCode::kUnavailable, "the answer was ended by an administrator");
}

struct Session::Choice {
  Choice(size_t idx, const Prompt& source) : choice_idx(idx), prompt(&source) {
    answer.choice_idx = idx;
  }

  // Adds text to the answer, by its parts; at the end, what the parser held back too.
  void take_apart(std::string text, Finish::Kind finish) {
    if (parser == nullptr) {
      if (!text.empty()) answer.add({OutputPart::Kind::kText, std::move(text), 0, {}, {}});
      return;
    }
    for (OutputPart& part : parser->push(text)) answer.add(std::move(part));
    if (finish == Finish::Kind::kNone) return;
    const bool is_cut = finish != Finish::Kind::kEnd;
    for (OutputPart& part : parser->finish(is_cut)) answer.add(std::move(part));
  }

  size_t choice_idx;
  const Prompt* prompt;
  RequestId request_id = 0;
  int32_t max_tokens = 0;
  std::unique_ptr<StreamDecoder> decoder;  // while it runs
  std::unique_ptr<TextPosition> position;  // while it runs, if there are scores
  std::unique_ptr<PartParser> parser;      // while it runs, if the text is taken apart
  std::optional<LineWatch> lines;
  ChoiceDelta answer;               // not yet sent; without streaming: the answer so far
  size_t paid_bytes = 0;            // of its scores: the prompt's, counted at the start
  size_t held_bytes = 0;            // of `answer`, in the lease
  std::vector<ScoredToken> unsent;  // scores whose text was not emitted yet
  std::string last_text;            // of the last token that fits: it waits for the reason
  int64_t num_characters = 0;       // emitted
  int32_t num_tokens = 0;
  double logprob = 0;  // of these tokens, where they are told
  bool echoed = false;
  bool called = false;   // a tool
  bool stopped = false;  // by a stop string: further tokens are not part of the answer
  bool finished = false;
};

Session::Session(const SessionHost& host, GenerationRequest request)
    : keeps_(host.keeps),
      engine_(host.engine),
      model_(host.model),
      counters_(host.counters),
      now_(host.now),
      limits_(host.limits),
      memory_(std::move(request.memory)),
      request_(std::move(request)) {
  const size_t n = static_cast<size_t>(request_.num_choices);
  knows_cached_.resize(request_.prompts.size());
  for (const Prompt& prompt : request_.prompts) {
    usage_.prompt_tokens += static_cast<int32_t>(prompt.ids.size());
  }
  usage_.predicted_tokens =
      static_cast<int32_t>(request_.prototype.predicted_ids.size() * request_.total_choices());
  choices_.reserve(request_.total_choices());
  for (size_t i = 0; i < request_.total_choices(); ++i) {
    choices_.emplace_back(i, request_.prompts[i / n]);
    choices_.back().echoed = !request_.echo;
  }
  if (counters_.live_responses.fetch_add(1) == 0) counters_.busy_since = now_();
}

Session::~Session() {
  counters_.live.remove(this);
  memory_.reset();
  counters_.live_responses.fetch_sub(1);
}

void Session::start(const SessionHost& host, GenerationRequest request,
                    std::unique_ptr<AnswerRenderer> renderer,
                    std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<Session> session(new Session(host, std::move(request)));
  session->renderer_ = std::move(renderer);
  session->writer_ = std::move(writer);
  session->renderer_->see_prompt(session->request_.prompts.front().ids);
  const Status status = session->submit_more();
  if (status.ok()) {
    const auto end = [weak = std::weak_ptr(session)] {
      if (const auto alive = weak.lock()) alive->abort();
    };
    host.counters.live.add(session.get(),
                           {session->request_.prototype.client_id, session->renderer_->id(),
                            host.now(), session->request_.prototype.client},
                           end);
    return session->begin();
  }
  session->cancel_all();
  session->close()->send(session->error_response_of(status.error()));
}

// Fills the window. Scarcity waits for one of our own choices to end; it is an error if none runs.
Status Session::submit_more() {
  while (num_submitted_ < choices_.size() &&
         num_submitted_ - num_finished_ < limits_.max_open_choices) {
    const Status status = submit(choices_[num_submitted_]);
    if (status.ok()) {
      ++num_submitted_;
      continue;
    }
    const bool can_wait =
        begun_ && num_submitted_ > num_finished_ && status.error().code == ErrorCode::kExhausted;
    return can_wait ? Status() : status;
  }
  return {};
}

Status Session::submit(Choice& choice) {
  Request request = request_.engine_request(choice.choice_idx, model_.max_context);
  const Tokenizer& tokenizer =
      request_.make_parser ? model_.text.answer_tokenizer() : *model_.text.tokenizer;
  const auto make_decoder = [&](std::vector<std::string> stops) {
    return StreamDecoder(tokenizer, std::move(stops), request_.skip_special, request_.include_stop,
                         last_tokens(choice.prompt->ids));
  };
  choice.max_tokens = request.max_tokens;
  if (request_.lines.any()) choice.lines.emplace(request_.lines);
  if (request_.make_parser) choice.parser = request_.make_parser(*choice.prompt);
  choice.decoder = std::make_unique<StreamDecoder>(make_decoder(request_.stop));
  if (request_.prototype.num_logprobs || request.num_prompt_logprobs) {
    choice.position =
        std::make_unique<TextPosition>(tokenizer, choice.prompt->echo_text, make_decoder({}));
  }
  if (request_.only_echoes()) {
    Event end;
    end.kind = Event::Kind::kFinished;
    end.reason = FinishReason::kLength;
    on_event(choice.choice_idx, std::move(end));
    return {};
  }
  const bool comes_with_first =
      request_.is_search() && choice.choice_idx % static_cast<size_t>(request_.num_choices) != 0;
  if (comes_with_first) return {};
  auto sink = [self = shared_from_this(), i = choice.choice_idx](Event&& event) {
    return self->on_event(i, std::move(event));
  };
  choice.request_id = TRY(engine_.submit(std::move(request), std::move(sink)));
  return {};
}

void Session::begin() {
  std::shared_ptr<ResponseWriter> writer;
  {
    std::lock_guard lock(mutex_);
    begun_ = true;
    scheduled_ = true;
    writer = writer_;
  }
  if (request_.stream) {
    const Framing& framing = renderer_->dialect().framing;
    writer->start_stream(
        {std::string(framing.content_type), request_.headers, std::string(framing.heartbeat)});
    const std::string bytes = renderer_->begin_stream(usage_);
    if (!bytes.empty()) writer->write(bytes);
  }
  const std::weak_ptr<Session> weak = weak_from_this();
  writer->on_written([weak] {
    if (const auto self = weak.lock()) self->on_written();
  });
  writer->on_disconnect([weak] {
    if (const auto self = weak.lock()) self->on_disconnect();
  });
  writer->post([self = shared_from_this()] { self->drain(); });
}

bool Session::on_event(size_t choice_idx, Event&& event) {
  std::shared_ptr<ResponseWriter> writer;
  bool taken = true;
  {
    std::lock_guard lock(mutex_);
    if (writer_ == nullptr) return false;
    if (!broken_) broken_ = find_breach(event);
    taken = !broken_;
    if (taken) events_.push_back({choice_idx, std::move(event)});
    if (!begun_ || scheduled_ || (paused_ && taken)) return taken;
    if (taken && can_wait(events_.back().event)) return true;
    scheduled_ = true;
    writer = writer_;
  }
  writer->post([self = shared_from_this()] { self->drain(); });
  return taken;
}

// Nobody waits for the tokens of an answer that is sent whole, but where its text may end it.
bool Session::can_wait(const Event& event) const {
  return !request_.stream && request_.stop.empty() && !request_.lines.any() &&
         event.kind == Event::Kind::kToken && events_.size() < kEventsKept;
}

// What ends the answer instead of taking one more event. A client is too slow only where it is its
// turn: what was sent is not taken, and many events came since it last took something. One whose
// I/O thread is busy is not.
std::optional<Error> Session::find_breach(const Event& event) {
  if (event.kind == Event::Kind::kFinished) return std::nullopt;
  const size_t num_open = std::min(choices_.size(), limits_.max_open_choices);
  if (paused_ && events_.size() >= read_mark_ + limits_.max_queued_events * num_open) {
    counters_.slow_clients.add();
    return make_error(ErrorCode::kExhausted,
                      "the client read too slowly, so the answer was ended early");
  }
  if (!memory_.grow(event_bytes(event))) return no_memory();
  return std::nullopt;
}

void Session::drain() {
  for (size_t i = 0; i < kEventsPerTurn; ++i) {
    std::optional<Pending> next;
    if (!take_turn(next)) return;
    if (next) {
      handle(std::move(*next));
    } else if (scoring_) {
      score_prompt();
      break;
    } else if (unfolding_) {
      unfold();
      break;
    } else {
      write_whole();
      break;
    }
  }
  std::shared_ptr<ResponseWriter> writer;
  {
    std::lock_guard lock(mutex_);
    writer = writer_;
    if (writer == nullptr) scheduled_ = false;
  }
  if (writer != nullptr) writer->post([self = shared_from_this()] { self->drain(); });
}

// True: go on, with `next` or with what was begun. False: there is nothing to do for now.
bool Session::take_turn(std::optional<Pending>& next) {
  std::optional<Error> broken;
  {
    std::lock_guard lock(mutex_);
    broken = broken_;
    if (writer_ != nullptr && !broken) {
      const bool was_paused = paused_;
      paused_ = request_.stream && writer_->queued_bytes() > limits_.max_queued_bytes;
      if (paused_ && !was_paused) read_mark_ = events_.size();
      kept_ = paused_ ? shared_from_this() : nullptr;
      const bool has_begun = scoring_ || unfolding_ || num_finished_ == choices_.size();
      if (!paused_ && has_begun) return true;
      if (!paused_ && !events_.empty()) {
        next = std::move(events_.front());
        events_.pop_front();
        (void)memory_.resize(memory_.bytes() - event_bytes(next->event));
        return true;
      }
    }
    scheduled_ = false;
    if (writer_ == nullptr) return false;
  }
  if (broken) fail(*broken);
  return false;
}

void Session::on_written() {
  {
    std::lock_guard lock(mutex_);
    read_mark_ = events_.size();
    if (!paused_ || scheduled_ || writer_ == nullptr) return;
    if (writer_->queued_bytes() > limits_.max_queued_bytes / 2) return;
    scheduled_ = true;
  }
  drain();
}

void Session::on_disconnect() {
  counters_.disconnects.add();
  note("cancelled");
  cancel_all();
  close();
}

void Session::handle(Pending&& pending) {
  Choice& choice = choices_[pending.choice_idx];
  Event& event = pending.event;
  switch (event.kind) {
    case Event::Kind::kPromptLogprobs:
      scoring_ = Scoring{pending.choice_idx, std::move(event.prompt_logprobs), 0};
      return;
    case Event::Kind::kToken:
      if (!choice.stopped) add_token(choice, event);
      return;
    case Event::Kind::kFinished:
      if (event.hypotheses.empty()) return end_choice(choice, event);
      unfolding_ = Unfolding{pending.choice_idx, std::move(event)};
      return;
  }
}

// Some of the tokens that a search has found, as if they came now. Its choices are submitted in
// order and free their places in the window one after another: each is there when its turn comes.
void Session::unfold() {
  for (size_t i = 0; i < kFoundPerTurn && unfolding_; ++i) {
    const BeamHypothesis& found = unfolding_->end.hypotheses[unfolding_->num_done];
    Choice& choice = choices_[unfolding_->choice_idx + unfolding_->num_done];
    Event event;
    event.usage = unfolding_->end.usage;
    event.usage.output_tokens = static_cast<int32_t>(found.token_ids.size());
    if (unfolding_->num_tokens < found.token_ids.size()) {
      event.token_id = found.token_ids[unfolding_->num_tokens++];
      add_token(choice, event);
      continue;
    }
    event.kind = Event::Kind::kFinished;
    event.reason = found.stop_id < 0 ? FinishReason::kLength : FinishReason::kStop;
    event.stop_id = found.stop_id;
    event.times = unfolding_->end.times;
    unfolding_->num_tokens = 0;
    if (++unfolding_->num_done == unfolding_->end.hypotheses.size()) unfolding_.reset();
    end_choice(choice, event);
  }
}

// Some of them: long prompts have many. A stream sends them in parts.
void Session::score_prompt() {
  Choice& choice = choices_[scoring_->choice_idx];
  const std::vector<int32_t>& ids = choice.prompt->ids;
  const size_t end = std::min(scoring_->scores.size(), ids.size());
  const size_t turn_end = std::min(end, scoring_->num_done + kScoresPerTurn);
  for (size_t i = scoring_->num_done; i < turn_end; ++i) {
    renderer_->add_score(
        {ids[i], std::move(scoring_->scores[i]), choice.position->of_prompt(ids[i])},
        choice.answer.scores);
  }
  scoring_->num_done = turn_end;
  if (turn_end == end) scoring_.reset();
  choice.paid_bytes = choice.answer.scores.bytes();
  if (request_.stream && choice.paid_bytes > kBytesPerTurn) {
    emit(choice, choice.echoed ? std::string() : choice.prompt->echo_text, {});
  }
}

void Session::add_token(Choice& choice, const Event& event) {
  if (first_token_us_ == 0) first_token_us_ = now_();
  know_cached(choice, event.usage);
  if (request_.only_computes) return stop_with(choice, {}, {Finish::Kind::kLength, {}});
  if (choice.choice_idx == 0) renderer_->see_token(event.token_id);
  if (!choice.echoed) emit(choice, choice.prompt->echo_text, {});
  count_output(choice, choice.num_tokens + 1);
  if (choice.parser && choice.parser->is_reasoning()) ++usage_.reasoning_tokens;
  if (event.logprobs) choice.logprob += double{event.logprobs->logprob};
  if (choice.position && event.logprobs) {
    const bool may_be_text = choice.parser == nullptr || choice.parser->is_text();
    choice.unsent.push_back(
        {event.token_id, event.logprobs, choice.position->of_output(event.token_id), may_be_text});
  }
  StreamPiece piece = choice.decoder->push(event.token_id);
  const auto length =
      choice.lines ? choice.lines->push(piece.text, now_() - first_token_us_) : std::nullopt;
  if (length) {
    stop_with(choice, piece.text.substr(0, *length), {Finish::Kind::kLength, {}});
  } else if (piece.stopped) {
    stop_with(choice, std::move(piece.text), {Finish::Kind::kStopString, std::move(piece.stop)});
  } else if (choice.num_tokens >= choice.max_tokens) {
    choice.last_text = std::move(piece.text);  // the end follows at once and goes with it
  } else if (!piece.text.empty()) {
    emit(choice, std::move(piece.text), {});
  }
}

// The choice ends here, whatever comes.
void Session::stop_with(Choice& choice, std::string text, Finish finish) {
  choice.stopped = true;
  engine_.stop(choice.request_id);
  emit(choice, std::move(text), std::move(finish));
}

void Session::end_choice(Choice& choice, const Event& event) {
  know_cached(choice, event.usage);
  know_times(choice, event.times);
  usage_.accepted_predicted_tokens += event.usage.accepted_predicted_tokens;
  if (!choice.stopped && event.failed()) return fail(event.error);
  if (!choice.stopped && event.reason == FinishReason::kCancelled) {
    return fail(ended_by_shutdown());
  }
  if (!choice.stopped) {
    count_output(choice, event.usage.output_tokens);
    StreamPiece rest = choice.decoder->finish();
    std::string text = choice.echoed ? std::string() : choice.prompt->echo_text;
    text += choice.last_text + rest.text;
    const bool is_full = event.reason == FinishReason::kLength;
    Finish finish{is_full ? Finish::Kind::kLength : Finish::Kind::kEnd, {}};
    if (event.repeats) finish.kind = Finish::Kind::kRepetition;
    if (rest.stopped) finish = {Finish::Kind::kStopString, std::move(rest.stop)};
    emit(choice, std::move(text), std::move(finish));
  }
  choice.finished = true;
  choice.decoder.reset();
  choice.position.reset();
  choice.parser.reset();
  if (++num_finished_ < choices_.size()) {
    const Status status = submit_more();
    if (!status.ok()) fail(status.error());
  } else if (request_.stream) {
    finish_stream();
  }
}

void Session::know_cached(const Choice& choice, const Usage& usage) {
  const size_t prompt_idx = choice.choice_idx / static_cast<size_t>(request_.num_choices);
  if (knows_cached_[prompt_idx] || usage.prompt_tokens == 0) return;
  knows_cached_[prompt_idx] = true;
  usage_.cached_tokens += usage.cached_tokens;
  if (usage_.miss.reason == CacheMiss::Reason::kNone) usage_.miss = usage.miss;
}

void Session::know_times(const Choice& choice, const RequestTimes& times) {
  if (times.started > 0 && queue_us_ < 0) queue_us_ = times.started - times.submitted;
  if (choice.choice_idx != 0) return;
  times_ = times;
  if (times.first_token > 0) first_token_us_ = times.first_token;
}

void Session::count_output(Choice& choice, int32_t num_tokens) {
  usage_.output_tokens += num_tokens - choice.num_tokens;
  choice.num_tokens = num_tokens;
}

// A choice that ends by itself, having called a tool, ended to have it called.
void Session::emit(Choice& choice, std::string text, Finish finish) {
  choice.echoed = true;
  choice.num_characters += count_characters(text);
  for (ScoredToken& token : choice.unsent) {
    // What a stop string cut off has no place in the text.
    token.text_offset = std::min(token.text_offset, choice.num_characters);
    renderer_->add_score(token, choice.answer.scores);
  }
  choice.unsent.clear();
  const bool ends = finish.kind != Finish::Kind::kNone;
  choice.take_apart(std::move(text), finish.kind);
  choice.called = choice.called || has_call(choice.answer);
  if (finish.kind == Finish::Kind::kEnd && choice.called) finish.kind = Finish::Kind::kToolCalls;
  if (ends) last_finish_ = finish.kind;
  choice.answer.finish = std::move(finish);
  const bool is_held = !ends && choice.parser && choice.answer.parts.empty();  // by the parser
  if (!request_.stream) {
    if (pay(choice) && !ends && !is_held) keep(choice);
    return;
  }
  if (is_held) return;
  const std::string bytes = renderer_->chunk(choice.answer, usage_);
  choice.answer = ChoiceDelta{choice.choice_idx, {}, {}, {}};
  std::lock_guard lock(mutex_);
  if (writer_ != nullptr) writer_->write(bytes);
}

// The part of the answer that came is held until the whole is sent. False: there is no memory.
bool Session::pay(Choice& choice) {
  const ScoreText& scores = choice.answer.scores;
  const size_t held = choice.answer.bytes() + scores.bytes() - choice.paid_bytes;
  std::lock_guard lock(mutex_);
  if (!memory_.grow(held - choice.held_bytes)) {
    if (!broken_) broken_ = no_memory();
    return false;
  }
  choice.held_bytes = held;
  return true;
}

// By the renderer, if it wants the answer in pieces.
void Session::keep(Choice& choice) {
  if (!renderer_->add_piece(choice.answer)) return;
  choice.answer = ChoiceDelta{choice.choice_idx, {}, {}, {}};
  choice.held_bytes = choice.paid_bytes = 0;
}

void Session::finish_stream() {
  note(log_name(last_finish_));
  const auto writer = close();
  if (writer == nullptr) return;
  writer->write(renderer_->end_stream(end()));
  writer->end_stream();
}

// Of each prompt's choices those that stay, the most likely token by token first.
void Session::choose_best() {
  const auto n = static_cast<ptrdiff_t>(request_.num_choices);
  const auto mean = [](const Choice& choice) {
    return choice.num_tokens == 0 ? -std::numeric_limits<double>::infinity()
                                  : choice.logprob / choice.num_tokens;
  };
  std::vector<Choice> best;
  for (auto first = choices_.begin(); first != choices_.end(); first += n) {
    std::sort(first, first + n, [&](const Choice& a, const Choice& b) {
      return mean(a) != mean(b) ? mean(a) > mean(b) : a.choice_idx < b.choice_idx;
    });
    std::move(first, first + request_.num_best, std::back_inserter(best));
  }
  for (size_t i = 0; i < best.size(); ++i) best[i].answer.choice_idx = i;
  choices_ = std::move(best);
  num_submitted_ = num_finished_ = choices_.size();
}

// Some of the choices. True: the answer is complete.
bool Session::render_whole() {
  const size_t begin = whole_.str().size();
  if (num_written_ == 0) {
    if (request_.num_best > 0) choose_best();
    renderer_->begin_whole(whole_);
  }
  while (num_written_ < choices_.size() && whole_.str().size() - begin < kBytesPerTurn) {
    Choice& choice = choices_[num_written_++];
    renderer_->add_choice(choice.answer, whole_);
    choice.answer = {};
  }
  if (num_written_ < choices_.size()) return false;
  renderer_->end_whole(end(), whole_);
  return true;
}

void Session::write_whole() {
  if (!render_whole()) return;
  note(log_name(last_finish_));
  const auto writer = close();
  if (writer == nullptr) return;
  HttpResponse response{200, whole_.take(), "application/json", request_.headers, {}};
  {
    std::lock_guard lock(mutex_);
    (void)memory_.resize(response.body.capacity());
    response.memory = std::move(memory_);
  }
  writer->send(std::move(response));
}

void Session::fail(const Error& error) {
  note("error");
  cancel_all();
  const auto writer = close();
  if (writer == nullptr) return;
  if (!request_.stream) {
    writer->send(error_response_of(error));
    return;
  }
  writer->write(renderer_->stream_error(error));
  writer->end_stream();
}

HttpResponse Session::error_response_of(const Error& error) const {
  return error_response(renderer_->dialect(), error, request_.prototype.client_id);
}

AnswerEnd Session::end() const { return {usage_, times_}; }

void Session::note(std::string_view finish) {
  RequestNote note;
  note.model = model_.info.name;
  note.answer_id = renderer_->id();
  note.finish = finish;
  note.prompt_tokens = usage_.prompt_tokens;
  note.cached_tokens = usage_.cached_tokens;
  note.output_tokens = usage_.output_tokens;
  if (knows_cached_.front()) note.cache_miss = cache_miss(request_, usage_);
  note.queue_us = queue_us_;
  const TimeUs arrived = request_.prototype.arrived_us;
  if (first_token_us_ > 0 && arrived > 0) note.first_token_us = first_token_us_ - arrived;
  std::lock_guard lock(mutex_);
  if (writer_ != nullptr) writer_->note(std::move(note));
}

void Session::abort() {
  std::shared_ptr<ResponseWriter> writer;
  {
    std::lock_guard lock(mutex_);
    writer = writer_;
  }
  if (writer == nullptr) return;
  writer->post([self = shared_from_this()] { self->fail(ended_by_administrator()); });
}

void Session::cancel_all() {
  for (const Choice& choice : choices_) {
    if (choice.request_id != 0 && !choice.finished) engine_.cancel(choice.request_id);
  }
}

std::shared_ptr<ResponseWriter> Session::close() {
  std::lock_guard lock(mutex_);
  events_.clear();
  kept_.reset();
  return std::exchange(writer_, nullptr);
}

}  // namespace headrace
