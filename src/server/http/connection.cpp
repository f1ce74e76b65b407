#include "server/http/connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <new>

#include "base/log.h"
#include "base/strings.h"
#include "server/http/message.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Socket = Connection::Socket;

constexpr size_t kReceiveBytes = 64 * 1024;
constexpr size_t kAheadBytes = 4 * 1024;          // read at once while a request is answered
constexpr size_t kMaxPipelinedBytes = 16 * 1024;  // of next requests, kept while one is answered
constexpr size_t kMaxLingerBytes = 64 * 1024 * 1024;
constexpr Milliseconds kLingerTime{5'000};
// Those that linger share what they may read: a crowd of refused bodies must not keep others
// waiting. The first bytes are free.
constexpr size_t kFreeLingerBytes = 256 * 1024;
constexpr std::chrono::microseconds kLingerShare{200};
constexpr std::chrono::microseconds kMaxLingerPause{100'000};
constexpr size_t kMinBytesPerSecond = 1024;  // of a body, and of an answer that is read

Milliseconds earned_by(size_t bytes) { return Milliseconds(bytes * 1000 / kMinBytesPerSecond); }

HttpResponse with_retry(HttpResponse response) {
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

constexpr std::string_view kNoMemory = "the server has no memory for this request now";

}  // namespace

HttpShared::HttpShared(const HttpOptions& given, HttpService does)
    : options(given),
      service(std::move(does)),
      counters(service.counters != nullptr ? *service.counters : own_counters),
      uploads(service.memory != nullptr ? service.memory->limit() / 2 : SIZE_MAX),
      workers(given.num_workers, static_cast<size_t>(given.max_queued_work)),
      large_workers(1, static_cast<size_t>(given.max_queued_work)) {}

Admission HttpShared::admit(HttpRequest& request) const {
  if (!service.admit) return {};
  try {
    return service.admit(request);
  } catch (const std::bad_alloc&) {
    return {with_retry(failure(nullptr, 503, kNoMemory)), {}};
  }
}

void HttpShared::handle(HttpRequest&& request,
                        const std::shared_ptr<ResponseWriter>& writer) const {
  const RouteRow* route = request.route;
  try {
    service.handle(std::move(request), writer);
  } catch (const std::bad_alloc&) {
    LOG(kWarning, "a request found no memory and was answered with status 503");
    writer->send(with_retry(failure(route, 503, kNoMemory)));
  } catch (const std::exception& error) {
    LOG(kError, "a request handler failed: {}", error.what());
    writer->send(failure(route, 500, "the server failed to handle this request"));
  }
}

HttpResponse HttpShared::failure(const RouteRow* route, int status,
                                 std::string_view message) const {
  if (service.fail) return service.fail(route, status, message);
  return HttpResponse{status, std::string(message) + "\n", "text/plain; charset=utf-8"};
}

void HttpShared::count(int status) const {
  if (status >= 400) counters.errors.add();
  if (status == 401 || status == 403) counters.refused_access.add();
}

Connection::Connection(Transport transport, HttpShared& shared, Peer peer)
    : shared_(shared),
      peer_(std::move(peer)),
      client_(shared.next_client++),
      transport_(std::move(transport)),
      socket_(transport_.socket()),
      deadline_(socket_.get_executor()) {}

Connection::~Connection() {
  std::lock_guard lock(shared_.mutex);
  shared_.connections.erase(this);
  const auto counted = shared_.num_of_address.find(peer_.counted_as);
  if (counted != shared_.num_of_address.end() && --counted->second == 0) {
    shared_.num_of_address.erase(counted);
  }
  shared_.changed.notify_all();
}

void Connection::start() { run(serve()); }
void Connection::refuse(std::string message) { run(turn_away(std::move(message))); }

void Connection::run(Awaitable<void> work) {
  asio::co_spawn(socket_.get_executor(), std::move(work),
                 [self = shared_from_this()](std::exception_ptr error) {
                   if (error) LOG(kError, "a connection ended with an unexpected failure");
                   self->close();
                 });
}

void Connection::close_if_idle() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->idle_) self->close();
  });
}

void Connection::close_now() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
}

void Connection::close() {
  // Without chunks an answer that is cut looks like a whole one, unless the connection breaks.
  if (exchange_ && !chunked_) return reset();
  error_code ignored;
  if (transport_.is_secure()) transport_.end_output();
  socket_.close(ignored);
  deadline_.cancel();
  if (exchange_) exchange_->disconnect();
}

void Connection::reset() {
  error_code ignored;
  socket_.set_option(Socket::linger(true, 0), ignored);
  socket_.close(ignored);
  deadline_.cancel();
  if (exchange_) exchange_->disconnect();
}

// Cancels the socket's operations when the time passes, unless armed again or disarmed.
void Connection::arm(Milliseconds after) {
  expired_ = false;
  deadline_.expires_after(after);
  deadline_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && self->deadline_.expiry() <= Clock::now()) self->on_deadline();
  });
}

void Connection::disarm() {
  writing_ = false;
  deadline_.expires_at(Clock::time_point::max());
}

void Connection::on_deadline() {
  if (writing_) {
    // The timeout is on progress: a client that takes its bytes slowly but steadily is served.
    const size_t taken = num_acknowledged();
    const Milliseconds earned = earned_by(taken - std::min(taken, sent_mark_));
    sent_mark_ = taken;
    if (earned >= shared_.options.write_timeout) return arm(shared_.options.write_timeout);
  }
  expired_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

// Of the bytes given to the network, those that the client's side has taken.
size_t Connection::num_acknowledged() {
  int unsent = 0;
  if (::ioctl(socket_.native_handle(), SIOCOUTQ, &unsent) != 0) return sent_bytes_;
  return sent_bytes_ - std::min(sent_bytes_, static_cast<size_t>(std::max(unsent, 0)));
}

// Ready for bytes. False: the connection is done for.
Connection::Awaitable<bool> Connection::open() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  if (transport_.is_secure()) arm(shared_.options.header_deadline);
  const error_code error = co_await transport_.open();
  disarm();
  if (error) shared_.counters.failed_handshakes.add();
  co_return !error;
}

Connection::Awaitable<void> Connection::turn_away(std::string message) {
  const bool opened = co_await open();
  if (!opened) co_return;
  HttpResponse response = with_retry(failure(503, message));
  co_await fail(std::move(response));
}

Connection::Awaitable<void> Connection::serve() {
  bool go_on = co_await open();
  while (go_on && !shared_.closing) {
    if (pending_.empty()) {
      const bool arrived = co_await wait_for_request();
      if (!arrived) co_return;
    }
    RequestParser parser(shared_.options, shared_.service.memory, &shared_.uploads);
    const bool complete = co_await read_request(parser);
    if (!complete) {
      end_record(false);
      co_return;
    }
    go_on = co_await answer(parser);
  }
  co_await linger();
}

// Between requests: nothing has arrived yet.
Connection::Awaitable<bool> Connection::wait_for_request() {
  idle_ = true;
  arm(shared_.options.idle_timeout);
  const bool arrived = co_await receive(nullptr);
  disarm();
  idle_ = false;
  co_return arrived;
}

// Waits for bytes and gives them to the parser; what it does not use stays pending. False: an end,
// an error or the deadline.
Connection::Awaitable<bool> Connection::receive(RequestParser* parser) {
  while (true) {
    if (!transport_.has_pending()) {
      const auto [wait_error] = co_await socket_.async_wait(Socket::wait_read, kAwait);
      if (wait_error) co_return false;
    }
    const error_code error = read_some(parser, kReceiveBytes);
    if (error == asio::error::would_block) continue;
    co_return !error;
  }
}

// Bytes pass through memory that the connections of a thread share. Never inlined into a coroutine,
// which may go on in another thread with the address of the first one's.
[[gnu::noinline]] error_code Connection::read_some(RequestParser* parser, size_t limit) {
  thread_local std::array<char, kReceiveBytes> scratch;
  error_code error;
  const size_t count = transport_.read_some(scratch.data(), limit, error);
  if (error) return error;
  received_bytes_ += count;
  feed(parser, std::string_view(scratch.data(), count));
  return {};
}

void Connection::feed(RequestParser* parser, std::string_view bytes) {
  if (parser != nullptr) {
    while (!bytes.empty() && !parser->done() && !parser->refusal()) {
      const bool had_head = parser->head_done();
      bytes.remove_prefix(parser->put(bytes));
      if (!had_head && parser->head_done()) break;
    }
  }
  if (bytes.empty()) return;
  if (pending_.empty()) pending_since_us_ = now_us();
  pending_ += bytes;
}

// False: the connection is done for (an answer was sent where one is due).
Connection::Awaitable<bool> Connection::read_request(RequestParser& parser) {
  arrived_us_ = pending_since_us_;
  extra_headers_.clear();
  record_ = {};
  has_record_ = true;
  route_ = nullptr;
  record_sent_mark_ = sent_bytes_;
  shared_.counters.requests.add();
  bool good = false;
  bool out_of_room = false;
  try {
    good = co_await read_head(parser);
    if (good) good = co_await admit(parser);
    if (good) good = co_await read_body(parser);
  } catch (const std::bad_alloc&) {
    out_of_room = true;
  }
  if (out_of_room) {
    HttpResponse response = with_retry(failure(503, kNoMemory));
    co_await fail(std::move(response));
    good = false;
  }
  co_return good;
}

Connection::Awaitable<bool> Connection::read_head(RequestParser& parser) {
  std::string early;
  early.swap(pending_);
  feed(&parser, early);
  arm(shared_.options.header_deadline);
  while (!parser.head_done() && !parser.refusal()) {
    const bool arrived = co_await receive(&parser);
    if (arrived) continue;
    const bool timed_out = expired_;
    disarm();
    if (timed_out) {
      HttpResponse late = failure(408, "the head of the request took too long");
      co_await fail(std::move(late));
    }
    co_return false;
  }
  disarm();
  if (parser.refusal()) {
    HttpResponse refusal = failure(*parser.refusal());
    co_await fail(std::move(refusal));
    co_return false;
  }
  begin_record(parser);
  co_return true;
}

// The service's word on the head, then the client's leave to send the body.
Connection::Awaitable<bool> Connection::admit(RequestParser& parser) {
  HttpRequest& request = parser.request();
  request.client = client_;
  request.arrived_us = arrived_us_;
  Admission admission = shared_.admit(request);
  extra_headers_ = std::move(admission.headers);
  route_ = request.route;
  record_.route = admission.route_path;
  record_.is_public = admission.is_public;
  record_.key_name = request.key_name;
  record_.client = request.client;
  refusal_ = std::move(admission.refusal);
  // A short body is read in any case, so that the connection can be used again.
  const bool is_short = parser.announced_bytes() <= kSmallBodyBytes && !parser.expects_continue();
  if (refusal_ && !is_short) {
    HttpResponse refusal = std::move(*refusal_);
    co_await fail(std::move(refusal));
    co_return false;
  }
  if (!refusal_ && parser.expects_continue() && !parser.done() && pending_.empty()) {
    const bool sent = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return false;
  }
  co_return true;
}

// A body must keep up 1 KiB/s after a grace, and end before the deadline, which is absolute. What
// comes faster is credit for a pause, of two graces at most: a body that stalls is dropped.
Connection::Awaitable<bool> Connection::read_body(RequestParser& parser) {
  std::string early;
  early.swap(pending_);
  feed(&parser, early);
  const auto last = Clock::now() + shared_.options.body_deadline;
  auto limit = Clock::now() + shared_.options.body_grace;
  while (!parser.done() && !parser.refusal()) {
    const auto now = Clock::now();
    arm(std::chrono::duration_cast<Milliseconds>(std::max(std::min(limit, last), now) - now));
    const size_t before = received_bytes_;
    const bool arrived = co_await receive(&parser);
    const bool timed_out = expired_;
    disarm();
    limit = std::min(limit + earned_by(received_bytes_ - before),
                     Clock::now() + 2 * shared_.options.body_grace);
    if (arrived) continue;
    if (timed_out) {
      HttpResponse late = failure(408, "the body of the request arrived too slowly");
      co_await fail(std::move(late));
    }
    co_return false;
  }
  record_.body_bytes = parser.body_bytes();
  if (!parser.refusal()) co_return true;
  if (parser.refusal()->status == 503) shared_.counters.refused_memory.add();
  HttpResponse refusal = failure(*parser.refusal());
  co_await fail(std::move(refusal));
  co_return false;
}

HttpResponse Connection::failure(int status, std::string_view message) const {
  return shared_.failure(route_, status, message);
}

HttpResponse Connection::failure(const HttpRefusal& refusal) const {
  HttpResponse response = failure(refusal.status, refusal.message);
  return refusal.status == 503 ? with_retry(std::move(response)) : std::move(response);
}

// Answers a request that cannot be read to its end; the connection cannot be used after it.
Connection::Awaitable<void> Connection::fail(HttpResponse response) {
  const std::string request_id =
      record_.request_id.empty() ? fresh_request_id() : record_.request_id;
  shared_.count(response.status);
  record_.status = response.status;
  const std::string head = render_head(response, {request_id, extra_headers_, false});
  const std::string_view body = head_only_ ? std::string_view() : response.body;
  const bool sent = co_await write(head, body);
  end_record(sent);
  if (sent) co_await linger();
}

class Connection::Lingering {
 public:
  explicit Lingering(HttpShared& shared) : shared_(shared) { ++shared_.num_lingering; }
  ~Lingering() { --shared_.num_lingering; }
  Lingering(const Lingering&) = delete;
  Lingering& operator=(const Lingering&) = delete;

 private:
  HttpShared& shared_;
};

// Closing with unread bytes resets the connection and can destroy the answer on its way: so tell
// the client that nothing follows and read what it still sends, within limits.
Connection::Awaitable<void> Connection::linger() {
  const Lingering counted(shared_);
  transport_.end_output();
  const auto end = Clock::now() + kLingerTime;
  const size_t before = received_bytes_;
  while (received_bytes_ - before < kMaxLingerBytes && !shared_.closing) {
    std::string().swap(pending_);
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
    if (left <= Milliseconds(0)) co_return;
    idle_ = true;
    arm(left);
    const bool arrived = co_await receive(nullptr);
    disarm();
    idle_ = false;
    if (!arrived) co_return;
    if (received_bytes_ - before < kFreeLingerBytes) continue;
    std::string().swap(pending_);  // hundreds may pause at once
    deadline_.expires_after(std::min(kLingerShare * shared_.num_lingering.load(), kMaxLingerPause));
    const auto [pause_error] = co_await deadline_.async_wait(kAwait);
    if (pause_error) co_return;
  }
}

// False: nothing more can be asked on this connection.
Connection::Awaitable<bool> Connection::answer(RequestParser& parser) {
  const bool keep_alive = parser.keep_alive();
  exchange_ = std::make_shared<Exchange>(socket_.get_executor(), shared_.closing, shared_.place);
  half_closed_ = false;
  probed_ = false;
  streamed_ = false;
  auto writer = handle_of(exchange_);
  hand_on(parser, writer);
  writer.reset();
  watch();
  const bool whole = co_await send_output(keep_alive);
  if (!whole) {
    exchange_->disconnect();
    if (!chunked_) reset();
  }
  record_.note = exchange_->last_note();
  exchange_->close();
  exchange_.reset();
  error_code ignored;
  socket_.cancel(ignored);  // the watch
  end_record(whole);
  co_return whole&& keep_alive && (chunked_ || !streamed_);
}

void Connection::hand_on(RequestParser& parser, const std::shared_ptr<ResponseWriter>& writer) {
  HttpRequest& request = parser.request();
  if (refusal_) return writer->send(std::move(*refusal_));
  if (request.body.empty()) return shared_.handle(std::move(request), writer);
  struct Waiting {
    HttpRequest request;
    ByteBudget::Lease upload;
  };
  const size_t body_bytes = request.body.size();
  const uint64_t client = request.client;
  auto waiting = std::make_shared<Waiting>(std::move(request), parser.take_upload());
  const auto answer =
      shared_.workers_for(body_bytes)
          .submit(client, [&shared = shared_, exchange = exchange_, waiting, writer] {
            if (exchange->client_left()) return;
            waiting->upload.reset();
            shared.handle(std::move(waiting->request), writer);
          });
  if (answer == WorkerPool::Answer::kFull) {
    writer->send(with_retry(failure(503, "too many requests are waiting to be read")));
  } else if (answer == WorkerPool::Answer::kClientFull) {
    writer->send(
        with_retry(failure(429, "too many requests of this client are waiting to be read")));
  }
}

// While an answer is made: notices that the client has left, keeps what it sends ahead.
//
// A client that has closed its side for sending may still read: it gets its answer. Whether it does
// cannot be seen until something is sent to it, which a closed socket answers with a reset. So a
// stream goes on with its next event; where nothing else is due, its heartbeat (a stream that has
// one) or a further `100 Continue` (before a whole answer, which HTTP/1.1 clients skip) is sent
// after probe_after and then with every heartbeat. HTTP/1.0 has neither: such an answer is made to
// its end.
void Connection::watch() {
  if (pending_.size() >= kMaxPipelinedBytes) return watch_for_reset();
  socket_.async_wait(Socket::wait_read, [self = shared_from_this(),
                                         exchange = exchange_](const error_code& wait_error) {
    if (wait_error || self->exchange_ != exchange) return;
    const error_code error = self->read_some(nullptr, kAheadBytes);
    if (error == asio::error::would_block) return self->watch();
    if (error == asio::error::eof) {
      self->half_closed_ = true;
      exchange->notify();
      return self->watch_for_reset();
    }
    if (error) return exchange->disconnect();
    self->watch();
  });
}

void Connection::watch_for_reset() {
  socket_.async_wait(Socket::wait_error,
                     [self = shared_from_this(), exchange = exchange_](const error_code& error) {
                       if (!error && self->exchange_ == exchange) exchange->disconnect();
                     });
}

// The handler went away without an answer.
HttpResponse Connection::dropped() const {
  return shared_.closing ? failure(503, "the server is shutting down")
                         : failure(500, "the server dropped this request");
}

// True: the whole answer was sent.
Connection::Awaitable<bool> Connection::send_output(bool keep_alive) {
  const std::shared_ptr<Exchange> exchange = exchange_;
  while (true) {
    if (exchange->client_left()) co_return false;
    HttpOutput output = exchange->take();
    if (output.abandoned && !streamed_ && !output.stream_head) output.whole = dropped();
    if (output.whole) {
      HttpResponse whole = std::move(*output.whole);
      const bool sent = co_await send_whole(std::move(whole), keep_alive);
      co_return sent;
    }
    const bool is_idle = !output.stream_head && output.data.empty() && !output.ended;
    if (!is_idle) {
      const bool sent = co_await send_stream(output, keep_alive);
      if (!sent) co_return false;
    }
    exchange->written();
    if (output.ended) co_return true;
    if (output.abandoned) co_return false;
    if (!is_idle) continue;
    const bool good = co_await wait_for_output();
    if (!good) co_return false;
  }
}

Connection::Awaitable<bool> Connection::send_whole(HttpResponse response, bool keep_alive) {
  const bool stay = keep_alive && !shared_.closing;
  shared_.count(response.status);
  record_.status = response.status;
  const std::string head = render_head(response, {record_.request_id, extra_headers_, stay});
  const std::string_view body = head_only_ ? std::string_view() : response.body;
  const bool sent = co_await write(head, body);
  co_return sent;
}

Connection::Awaitable<bool> Connection::send_stream(HttpOutput& output, bool keep_alive) {
  std::string bytes;
  if (output.stream_head) {
    streamed_ = true;
    record_.status = 200;
    heartbeat_ = output.stream_head->heartbeat;
    bytes = render_stream_head(*output.stream_head,
                               {record_.request_id, extra_headers_, keep_alive}, chunked_);
  }
  append_chunk(bytes, output.data);
  if (output.ended && chunked_) bytes += "0\r\n\r\n";
  const bool sent = co_await write(bytes);
  co_return sent;
}

// Waits for output; says something where the silence is long.
Connection::Awaitable<bool> Connection::wait_for_output() {
  Milliseconds limit = shared_.options.heartbeat;
  if (half_closed_ && !probed_) limit = std::min(limit, shared_.options.probe_after);
  const bool woken = co_await exchange_->wait(limit);
  if (woken) co_return true;
  std::string beat;
  if (streamed_) {
    append_chunk(beat, heartbeat_);
  } else if (half_closed_ && chunked_) {
    beat = "HTTP/1.1 100 Continue\r\n\r\n";
  }
  probed_ = half_closed_;
  const bool sent = co_await write(beat);
  co_return sent;
}

void Connection::append_chunk(std::string& bytes, std::string_view data) const {
  if (data.empty()) return;
  if (chunked_) append_format(bytes, "{:x}\r\n", data.size());
  bytes += data;
  if (chunked_) bytes += "\r\n";
}

Connection::Awaitable<bool> Connection::write(std::string_view first, std::string_view second) {
  sent_mark_ = num_acknowledged();
  arm(shared_.options.write_timeout);
  writing_ = true;
  bool good = true;
  while (good && !(first.empty() && second.empty())) {
    const Transport::Written written = co_await transport_.write_some(first, second);
    good = !written.error;
    sent_bytes_ += written.count;
    const size_t of_first = std::min(written.count, first.size());
    first.remove_prefix(of_first);
    second.remove_prefix(written.count - of_first);
  }
  const bool too_slow = expired_;
  disarm();
  if (!good && too_slow) reset();
  co_return good;
}

void Connection::begin_record(RequestParser& parser) {
  const HttpRequest& request = parser.request();
  record_.method = request.method;
  record_.path = request.path;
  record_.request_id = request.request_id;
  record_.trace_parent = request.header("traceparent");
  chunked_ = parser.is_http11();
  head_only_ = request.method == "HEAD";
}

void Connection::end_record(bool whole) {
  if (!std::exchange(has_record_, false) || !shared_.service.finished) return;
  record_.peer = peer_.address;
  record_.total_us = now_us() - arrived_us_;
  record_.sent_bytes = sent_bytes_ - record_sent_mark_;
  if (!whole) {
    record_.ending = expired_ || shared_.closing ? RequestRecord::Ending::kDropped
                                                 : RequestRecord::Ending::kClientLeft;
  }
  shared_.service.finished(record_);
}

}  // namespace headrace
