// Exchange: one request's answer, between the threads that make it and the connection that sends
// it. Inside this folder only.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <mutex>
#include <optional>

#include "base/handover.h"
#include "server/http/http.h"

namespace headrace {

// Operations report errors as values. In coroutines every co_await is a statement or initialiser of
// its own, with named operands: g++ 12 miscompiles some that stand in conditions or hold
// temporaries.
inline constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

// What the connection takes from an exchange in one go.
struct HttpOutput {
  std::optional<HttpResponse> whole;
  std::optional<StreamHead> stream_head;
  std::string data;
  bool ended = false;
  bool abandoned = false;  // the handler went away without finishing, or even without answering
};

class Exchange : public ResponseWriter, public std::enable_shared_from_this<Exchange> {
 public:
  // closing, place: of the server.
  Exchange(boost::asio::any_io_executor strand, const std::atomic<bool>& closing,
           std::shared_ptr<HandoverPlace> place)
      : strand_(strand), closing_(closing), place_(std::move(place)), wake_(strand) {}

  void send(HttpResponse response) override;
  void start_stream(StreamHead head) override;
  void write(std::string_view data) override;
  void end_stream() override;
  size_t queued_bytes() const override;
  bool disconnected() const override;
  void on_disconnect(std::function<void()> callback) override;
  void on_written(std::function<void()> callback) override;
  void post(std::function<void()> task) override;
  void note(RequestNote note) override;

  // The handler's last reference is gone.
  void abandon();

  // Below: the connection's side, on the strand.

  HttpOutput take();
  void written();  // what was taken
  bool client_left() const;
  RequestNote last_note() const;
  void disconnect();  // the client is gone
  // The answer is complete: callbacks (and what they hold) are let go.
  void close();
  // Waits for output; false if the time passed without any.
  boost::asio::awaitable<bool> wait(std::chrono::milliseconds limit);
  void notify();  // any thread: ends the wait

 private:
  const boost::asio::any_io_executor strand_;
  const std::atomic<bool>& closing_;
  const std::shared_ptr<HandoverPlace> place_;  // the threads behind the strand
  boost::asio::steady_timer wake_;              // strand only

  mutable std::mutex mutex_;  // guards all below
  HttpOutput output_;
  size_t queued_bytes_ = 0;
  size_t in_flight_bytes_ = 0;
  bool answered_ = false;  // send or start_stream was called
  bool finished_ = false;  // nothing may follow
  bool disconnected_ = false;
  bool notified_ = false;  // since the last take
  RequestNote note_;
  std::function<void()> disconnect_callback_;
  std::function<void()> written_callback_;
};

// The handler's reference: when the last copy goes, an unanswered request gets a 500.
std::shared_ptr<ResponseWriter> handle_of(const std::shared_ptr<Exchange>& exchange);

}  // namespace headrace
