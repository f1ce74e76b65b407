#include "server/http/exchange.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace headrace {
namespace {

namespace asio = boost::asio;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kMaxWriteBytes = 64 * 1024;  // one chunk: the unit of the write timeout

}  // namespace

void Exchange::send(HttpResponse response) {
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
    finished_ = true;
    output_.whole = std::move(response);
  }
  notify();
}

void Exchange::start_stream(StreamHead head) {
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
    output_.stream_head = std::move(head);
  }
  notify();
}

void Exchange::write(std::string_view data) {
  {
    std::lock_guard lock(mutex_);
    if (finished_ || disconnected_) return;
    output_.data += data;
    queued_bytes_ = output_.data.size() + in_flight_bytes_;
  }
  notify();
}

void Exchange::end_stream() {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    output_.ended = true;
  }
  notify();
}

size_t Exchange::queued_bytes() const {
  std::lock_guard lock(mutex_);
  return queued_bytes_;
}

bool Exchange::disconnected() const { return closing_ || client_left(); }

bool Exchange::client_left() const {
  std::lock_guard lock(mutex_);
  return disconnected_;
}

void Exchange::note(RequestNote note) {
  std::lock_guard lock(mutex_);
  note_ = std::move(note);
}

RequestNote Exchange::last_note() const {
  std::lock_guard lock(mutex_);
  return note_;
}

void Exchange::on_disconnect(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!disconnected_) {
      disconnect_callback_ = std::move(callback);
      return;
    }
  }
  post(std::move(callback));
}

void Exchange::on_written(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  written_callback_ = std::move(callback);
}

void Exchange::post(std::function<void()> task) {
  if (Handover* handover = Handover::current()) {
    return handover->add(place_, [self = shared_from_this(), task = std::move(task)]() mutable {
      asio::dispatch(self->strand_, std::move(task));
    });
  }
  asio::post(strand_, [self = shared_from_this(), task = std::move(task)] { task(); });
}

void Exchange::abandon() {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    answered_ = true;
    output_.abandoned = true;
  }
  notify();
}

HttpOutput Exchange::take() {
  std::lock_guard lock(mutex_);
  notified_ = false;
  HttpOutput taken;
  taken.whole = std::exchange(output_.whole, std::nullopt);
  taken.stream_head = std::exchange(output_.stream_head, std::nullopt);
  taken.abandoned = output_.abandoned;
  if (output_.data.size() <= kMaxWriteBytes) {
    taken.data.swap(output_.data);
    taken.ended = output_.ended;
  } else {
    taken.data = output_.data.substr(0, kMaxWriteBytes);
    output_.data.erase(0, kMaxWriteBytes);
  }
  in_flight_bytes_ = taken.data.size();
  return taken;
}

void Exchange::written() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    in_flight_bytes_ = 0;
    queued_bytes_ = output_.data.size();
    callback = written_callback_;
  }
  if (callback) callback();
}

void Exchange::disconnect() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    if (disconnected_) return;
    disconnected_ = true;
    output_.data.clear();
    queued_bytes_ = 0;
    if (!finished_) callback = std::move(disconnect_callback_);
    disconnect_callback_ = nullptr;
    written_callback_ = nullptr;
  }
  if (callback) callback();
  wake_.cancel();
}

void Exchange::close() {
  std::lock_guard lock(mutex_);
  finished_ = true;
  disconnect_callback_ = nullptr;
  written_callback_ = nullptr;
}

asio::awaitable<bool> Exchange::wait(Milliseconds limit) {
  {
    std::lock_guard lock(mutex_);
    if (notified_ || disconnected_) co_return true;
  }
  wake_.expires_after(limit);
  const auto [error] = co_await wake_.async_wait(kAwait);
  co_return error == asio::error::operation_aborted;
}

void Exchange::notify() {
  {
    std::lock_guard lock(mutex_);
    if (notified_) return;
    notified_ = true;
  }
  asio::post(strand_, [self = shared_from_this()] { self->wake_.cancel(); });
}

std::shared_ptr<ResponseWriter> handle_of(const std::shared_ptr<Exchange>& exchange) {
  return std::shared_ptr<ResponseWriter>(exchange.get(),
                                         [exchange](ResponseWriter*) { exchange->abandon(); });
}

}  // namespace headrace
