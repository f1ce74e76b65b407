#include "server/api/pool_session.h"

#include <utility>

#include "server/api/cache_miss.h"

namespace headrace {
namespace {

constexpr size_t kWrittenPerTurn = 16;  // vectors: well under a millisecond of text each

}  // namespace

PoolSession::PoolSession(const SessionHost& host, GenerationRequest request)
    : keeps_(host.keeps),
      engine_(host.engine),
      model_(host.model),
      counters_(host.counters),
      max_open_(host.limits.max_open_choices),
      request_(std::move(request)),
      outputs_(request_.prompts.size()),
      done_(request_.prompts.size()) {
  for (const Prompt& prompt : request_.prompts) {
    end_.usage.prompt_tokens += static_cast<int32_t>(prompt.ids.size());
  }
  if (counters_.live_responses.fetch_add(1) == 0) counters_.busy_since = host.now();
}

PoolSession::~PoolSession() {
  counters_.live.remove(this);
  request_.memory.reset();
  counters_.live_responses.fetch_sub(1);
}

void PoolSession::start(const SessionHost& host, GenerationRequest request,
                        std::unique_ptr<PooledRenderer> renderer,
                        std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<PoolSession> session(new PoolSession(host, std::move(request)));
  session->renderer_ = std::move(renderer);
  session->writer_ = writer;
  session->scheduled_ = true;
  const std::weak_ptr<PoolSession> weak = session;
  host.counters.live.add(session.get(),
                         {session->request_.prototype.client_id, session->renderer_->id(),
                          host.now(), session->request_.prototype.client},
                         [weak] {
                           if (const auto self = weak.lock()) self->abort();
                         });
  writer->on_disconnect([weak] {
    if (const auto self = weak.lock()) self->on_disconnect();
  });
  writer->post([session] { session->drain(); });
}

bool PoolSession::on_event(size_t prompt_idx, Event&& event) {
  {
    std::lock_guard lock(mutex_);
    if (writer_ == nullptr) return false;
    if (event.kind != Event::Kind::kFinished) {
      outputs_[prompt_idx].label_logprobs = std::move(event.label_logprobs);
      return true;
    }
    outputs_[prompt_idx].embedding = std::move(event.embedding);
    done_[prompt_idx] = true;
    ++num_done_;
    end_.usage.cached_tokens += event.usage.cached_tokens;
    CacheMiss& miss = end_.usage.miss;
    if (miss.reason == CacheMiss::Reason::kNone) miss = event.usage.miss;
    if (prompt_idx == 0) end_.times = event.times;
    if (event.failed()) broken_ = std::move(event.error);
    if (event.reason == FinishReason::kCancelled) broken_ = ended_by_shutdown();
  }
  schedule();
  return true;
}

void PoolSession::abort() {
  {
    std::lock_guard lock(mutex_);
    broken_ = ended_by_administrator();
  }
  schedule();
}

void PoolSession::schedule() {
  std::shared_ptr<ResponseWriter> writer;
  {
    std::lock_guard lock(mutex_);
    if (scheduled_ || writer_ == nullptr) return;
    scheduled_ = true;
    writer = writer_;
  }
  writer->post([self = shared_from_this()] { self->drain(); });
}

void PoolSession::drain() {
  std::optional<Error> broken;
  {
    std::lock_guard lock(mutex_);
    scheduled_ = false;
    if (writer_ == nullptr) return;
    broken = broken_;
  }
  if (broken) return fail(*broken);
  submit_more();
  write_more();
}

// Scarcity waits for one of our own prompts to end; it is an error if none is in the engine.
void PoolSession::submit_more() {
  while (ids_.size() < request_.prompts.size()) {
    const size_t idx = ids_.size();
    size_t num_open = 0;
    {
      std::lock_guard lock(mutex_);
      num_open = ids_.size() - num_done_;
    }
    if (num_open >= max_open_) return;
    auto id = engine_.submit(request_.engine_request(idx, model_.max_context),
                             [self = shared_from_this(), idx](Event&& event) {
                               return self->on_event(idx, std::move(event));
                             });
    if (id.ok()) {
      ids_.push_back(*id);
    } else if (num_open > 0 && id.error().code == ErrorCode::kExhausted) {
      return;
    } else {
      return fail(id.error());
    }
  }
}

void PoolSession::write_more() {
  const size_t turn_end = num_written_ + kWrittenPerTurn;
  for (; num_written_ < request_.prompts.size(); ++num_written_) {
    PooledOutput output;
    {
      std::lock_guard lock(mutex_);
      if (writer_ == nullptr || !done_[num_written_]) return;
      if (num_written_ < turn_end) output = std::move(outputs_[num_written_]);
    }
    if (num_written_ == turn_end) return schedule();
    renderer_->add(num_written_, std::move(output), json_);
  }
  send();
}

void PoolSession::send() {
  AnswerEnd end;
  {
    std::lock_guard lock(mutex_);
    end = end_;
  }
  renderer_->end(end, json_);
  note("stop");
  const std::shared_ptr<ResponseWriter> writer = close();
  if (writer == nullptr) return;
  HttpResponse response{200, json_.take(), "application/json", std::move(request_.headers)};
  response.memory = std::move(request_.memory);
  writer->send(std::move(response));
}

void PoolSession::on_disconnect() {
  counters_.disconnects.add();
  note("cancelled");
  close();
  for (const RequestId id : ids_) engine_.cancel(id);
}

void PoolSession::fail(const Error& error) {
  note("error");
  const std::shared_ptr<ResponseWriter> writer = close();
  for (const RequestId id : ids_) engine_.cancel(id);
  if (writer == nullptr) return;
  writer->send(error_response(renderer_->dialect(), error, request_.prototype.client_id));
}

void PoolSession::note(std::string_view finish) {
  std::lock_guard lock(mutex_);
  if (writer_ == nullptr) return;
  RequestNote note;
  note.model = model_.info.name;
  note.answer_id = renderer_->id();
  note.finish = std::string(finish);
  note.prompt_tokens = end_.usage.prompt_tokens;
  note.cached_tokens = end_.usage.cached_tokens;
  note.output_tokens = 0;
  if (end_.times.started > 0) {
    note.queue_us = end_.times.started - end_.times.submitted;
    note.cache_miss = cache_miss(request_, end_.usage);
  }
  writer_->note(std::move(note));
}

std::shared_ptr<ResponseWriter> PoolSession::close() {
  std::lock_guard lock(mutex_);
  return std::exchange(writer_, nullptr);
}

}  // namespace headrace
