#include "server/session.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr size_t kContextTokens = 16;  // of the prompt, so that the first token joins correctly

int64_t count_characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::vector<int32_t> last_tokens(const std::vector<int32_t>& ids) {
  const size_t count = std::min(ids.size(), kContextTokens);
  return {ids.end() - static_cast<int64_t>(count), ids.end()};
}

}  // namespace

struct Session::Choice {
  Choice(size_t idx, const Prompt& source, StreamDecoder text)
      : choice_idx(idx), prompt(&source), decoder(std::move(text)) {
    whole.choice_idx = idx;
    whole.first = true;
  }

  size_t choice_idx;
  const Prompt* prompt;
  StreamDecoder decoder;
  RequestId request_id = 0;
  ChoiceDelta whole;                // without streaming: the answer so far
  std::vector<ScoredToken> unsent;  // scores whose text was not emitted yet
  int64_t num_characters = 0;       // of the text of the scored tokens so far
  size_t num_prompt_scores = 0;
  int32_t num_tokens = 0;
  int32_t cached_tokens = 0;
  bool first = true;  // nothing was emitted yet
  bool echoed = false;
  bool stopped = false;  // by a stop string: further tokens are not part of the answer
  bool finished = false;
};

Session::Session(const SessionHost& host, GenerationRequest request)
    : engine_(host.engine),
      model_(host.model),
      counters_(host.counters),
      limits_(host.limits),
      request_(std::move(request)) {
  const size_t n = static_cast<size_t>(request_.num_choices);
  choices_.reserve(request_.total_choices());
  for (size_t i = 0; i < request_.total_choices(); ++i) {
    const Prompt& prompt = request_.prompts[i / n];
    choices_.emplace_back(
        i, prompt,
        StreamDecoder(*model_.text.tokenizer, request_.stop, request_.skip_special,
                      request_.include_stop, last_tokens(prompt.ids)));
    choices_.back().echoed = !request_.echo;
  }
  num_open_choices_ = choices_.size();
  if (counters_.live_responses.fetch_add(1) == 0) counters_.busy_since = now_us();
}

Session::~Session() { counters_.live_responses.fetch_sub(1); }

void Session::start(const SessionHost& host, GenerationRequest request,
                    std::unique_ptr<ResponseRenderer> renderer,
                    std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<Session> session(new Session(host, std::move(request)));
  session->renderer_ = std::move(renderer);
  session->writer_ = std::move(writer);
  if (session->submit_all()) session->begin();
}

bool Session::submit_all() {
  for (Choice& choice : choices_) {
    auto sink = [self = shared_from_this(), i = choice.choice_idx](Event&& event) {
      return self->on_event(i, std::move(event));
    };
    const auto id = engine_.submit(request_.engine_request(choice.choice_idx, model_.max_context),
                                   std::move(sink));
    if (id.ok()) {
      choice.request_id = *id;
      continue;
    }
    for (size_t i = choice.choice_idx; i < choices_.size(); ++i) choices_[i].finished = true;
    cancel_all();
    close()->send(error_response(id.error()));
    return false;
  }
  return true;
}

void Session::begin() {
  std::shared_ptr<ResponseWriter> writer;
  {
    std::lock_guard lock(mutex_);
    begun_ = true;
    scheduled_ = true;
    writer = writer_;
  }
  if (request_.stream) writer->start_stream({});
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
  {
    std::lock_guard lock(mutex_);
    if (writer_ == nullptr) return false;
    const bool is_end = event.kind == Event::Kind::kFinished;
    if (!is_end && events_.size() >= limits_.max_queued_events * request_.total_choices()) {
      too_slow_ = true;
    }
    if (too_slow_ && !is_end) return false;
    events_.push_back({choice_idx, std::move(event)});
    if (!begun_ || scheduled_ || (paused_ && !too_slow_)) return true;
    scheduled_ = true;
    writer = writer_;
  }
  writer->post([self = shared_from_this()] { self->drain(); });
  return true;
}

void Session::drain() {
  while (true) {
    Pending next;
    bool too_slow = false;
    {
      std::lock_guard lock(mutex_);
      too_slow = too_slow_;
      paused_ = writer_ != nullptr && request_.stream && !too_slow &&
                writer_->queued_bytes() > limits_.max_queued_bytes;
      if (writer_ == nullptr || paused_ || events_.empty()) {
        scheduled_ = false;
        return;
      }
      next = std::move(events_.front());
      events_.pop_front();
    }
    if (too_slow) {
      counters_.slow_clients.add();
      cancel_all();
      fail(make_error(ErrorCode::kExhausted,
                      "the client read too slowly, so the answer was ended early"));
    } else {
      handle(next.choice_idx, std::move(next.event));
    }
  }
}

void Session::on_written() {
  {
    std::lock_guard lock(mutex_);
    if (!paused_ || scheduled_ || writer_ == nullptr) return;
    if (writer_->queued_bytes() > limits_.max_queued_bytes / 2) return;
    scheduled_ = true;
  }
  drain();
}

void Session::on_disconnect() {
  counters_.disconnects.add();
  cancel_all();
  close();
}

void Session::handle(size_t choice_idx, Event&& event) {
  Choice& choice = choices_[choice_idx];
  switch (event.kind) {
    case Event::Kind::kPromptLogprobs:
      add_prompt_scores(choice, std::move(event));
      return;
    case Event::Kind::kToken:
      if (!choice.stopped) add_token(choice, event);
      return;
    case Event::Kind::kFinished:
      end_choice(choice, event);
      return;
  }
}

void Session::add_prompt_scores(Choice& choice, Event&& event) {
  const std::vector<int32_t>& ids = choice.prompt->ids;
  for (auto& score : event.prompt_logprobs) {
    if (choice.num_prompt_scores == ids.size()) return;
    const int32_t id = ids[choice.num_prompt_scores++];
    choice.unsent.push_back({id, std::move(score), choice.num_characters});
    choice.num_characters += count_characters(model_.text.tokenizer->token_bytes(id, false));
  }
}

void Session::add_token(Choice& choice, const Event& event) {
  if (!choice.echoed) emit(choice, choice.prompt->echo_text, FinishReason::kNone);
  ++choice.num_tokens;
  if (event.logprobs) {
    choice.unsent.push_back({event.token_id, event.logprobs, choice.num_characters});
    choice.num_characters +=
        count_characters(model_.text.tokenizer->token_bytes(event.token_id, false));
  }
  StreamPiece piece = choice.decoder.push(event.token_id);
  if (piece.stopped) {
    choice.stopped = true;
    engine_.cancel(choice.request_id);
  }
  if (!piece.text.empty()) emit(choice, std::move(piece.text), FinishReason::kNone);
}

void Session::end_choice(Choice& choice, const Event& event) {
  if (!choice.stopped && event.reason == FinishReason::kError) {
    fail(event.error);
    return;
  }
  if (!choice.stopped && event.reason == FinishReason::kCancelled) {
    fail(make_error(ErrorCode::kUnavailable,
                    "the answer was ended early because the server is shutting down"));
    return;
  }
  if (!choice.echoed) emit(choice, choice.prompt->echo_text, FinishReason::kNone);
  std::string rest;
  if (!choice.stopped) {
    rest = choice.decoder.finish().text;
    choice.num_tokens = event.usage.output_tokens;
  }
  choice.cached_tokens = event.usage.cached_tokens;
  choice.finished = true;
  emit(choice, std::move(rest), choice.stopped ? FinishReason::kStop : event.reason);
  if (--num_open_choices_ == 0) finish();
}

void Session::emit(Choice& choice, std::string text, FinishReason finish) {
  choice.echoed = true;
  if (!request_.stream) {
    choice.whole.text += text;
    std::move(choice.unsent.begin(), choice.unsent.end(), std::back_inserter(choice.whole.scores));
    choice.unsent.clear();
    choice.whole.finish = finish;
    return;
  }
  const ChoiceDelta delta{choice.choice_idx, std::exchange(choice.first, false), std::move(text),
                          std::exchange(choice.unsent, {}), finish};
  const Usage so_far = usage();
  const std::string bytes = renderer_->chunk(delta, request_.continuous_usage ? &so_far : nullptr);
  std::lock_guard lock(mutex_);
  if (writer_ != nullptr) writer_->write(bytes);
}

void Session::finish() {
  const Usage total = usage();
  const auto writer = close();
  if (writer == nullptr) return;
  if (request_.stream) {
    if (request_.include_usage) writer->write(renderer_->usage_chunk(total));
    writer->write(renderer_->end_event());
    writer->end_stream();
    return;
  }
  std::vector<ChoiceDelta> answers;
  for (Choice& choice : choices_) answers.push_back(std::move(choice.whole));
  writer->send(HttpResponse{200, renderer_->whole(answers, total)});
}

void Session::fail(const Error& error) {
  cancel_all();
  const auto writer = close();
  if (writer == nullptr) return;
  if (!request_.stream) {
    writer->send(error_response(error));
    return;
  }
  writer->write(renderer_->error_event(error));
  writer->end_stream();
}

// Of the whole response: a prompt counts once however many choices it has.
Usage Session::usage() const {
  Usage total;
  for (const Choice& choice : choices_) {
    total.output_tokens += choice.num_tokens;
    if (choice.choice_idx % static_cast<size_t>(request_.num_choices) != 0) continue;
    total.prompt_tokens += static_cast<int32_t>(choice.prompt->ids.size());
    total.cached_tokens += choice.cached_tokens;
  }
  return total;
}

void Session::cancel_all() {
  for (const Choice& choice : choices_) {
    if (!choice.finished) engine_.cancel(choice.request_id);
  }
}

std::shared_ptr<ResponseWriter> Session::close() {
  std::lock_guard lock(mutex_);
  events_.clear();
  return std::exchange(writer_, nullptr);
}

}  // namespace headrace
