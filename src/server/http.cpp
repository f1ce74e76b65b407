#include "server/http.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/queue.h"
#include "server/json.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::beast::error_code;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Parser = http::request_parser<http::string_body>;

// Operations report errors as values. In coroutines every co_await is a statement or initialiser of
// its own, with named operands: g++ 12 miscompiles some that stand in conditions or hold
// temporaries.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kMaxPipelinedBytes =
    64 * 1024;                                // of the next requests, kept while one is answered
constexpr size_t kMaxWriteBytes = 64 * 1024;  // one chunk: the unit of the write timeout
constexpr size_t kMaxLingerBytes = 64 * 1024 * 1024;
constexpr Milliseconds kLingerTime{5'000};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view reason_phrase(int status) {
  const std::string_view known = http::obsolete_reason(static_cast<http::status>(status));
  return known.empty() ? std::string_view("Unknown") : known;
}

// "Sat, 21 Nov 2026 10:00:00 GMT"
std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts));
}

std::string fresh_request_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

bool is_good_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.' || c == ':';
    if (!good) return false;
  }
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

Error bad_request(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), {}, {}};
}

// What the parser or the network said, as a status; 0: close without an answer.
int status_of_read_error(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  if (error.category() == http::make_error_code(http::error::bad_method).category()) return 400;
  return 0;
}

HttpResponse response_to_read_error(int status, const error_code& error,
                                    const HttpOptions& options) {
  if (status == 431) {
    return error_response(status,
                          fmt::format("the request line and headers are longer than {} bytes",
                                      options.max_head_bytes));
  }
  if (status == 413) {
    return error_response(status,
                          fmt::format("the body is longer than {} bytes", options.max_body_bytes));
  }
  return error_response(status,
                        fmt::format("this is not a valid HTTP/1.1 request: {}", error.message()));
}

void configure(Parser& parser, const HttpOptions& options) {
  parser.header_limit(static_cast<std::uint32_t>(options.max_head_bytes));
  parser.body_limit(options.max_body_bytes);
}

// Checks that are on top of the parser's, before any byte of the body is read.
Status check_head(const Parser& parser, const HttpOptions& options) {
  const auto& head = parser.get();
  const std::string_view target = head.target();
  if (target.size() > options.max_target_bytes) {
    return make_error(ErrorCode::kExhausted, "the request target is longer than {} bytes",
                      options.max_target_bytes);
  }
  if (target != "*" && !target.starts_with('/')) {
    return bad_request("the request target must begin with '/'");
  }
  if (head.version() >= 11 && head.count(http::field::host) != 1) {
    return bad_request("exactly one Host header is needed");
  }
  if (std::distance(head.begin(), head.end()) > options.max_headers) {
    return make_error(ErrorCode::kExhausted, "more than {} headers", options.max_headers);
  }
  return {};
}

int status_of_head_error(const Error& error) {
  if (error.code != ErrorCode::kExhausted) return 400;
  return error.message.starts_with("the request target") ? 414 : 431;
}

Result<HttpRequest> to_request(Parser&& parser) {
  HttpRequest request;
  auto message = parser.release();
  request.method = std::string(message.method_string());
  const std::string_view target = message.target();
  const size_t question = target.find('?');
  auto path = percent_decode(target.substr(0, question));
  if (!path) return bad_request("the request target has a broken percent escape");
  request.path = std::move(*path);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    request.headers.emplace_back(lower(std::string_view(field.name_string())),
                                 std::string(std::string_view(field.value())));
  }
  request.body = std::move(message.body());
  const std::string_view id = request.header("x-request-id");
  request.request_id = is_good_request_id(id) ? std::string(id) : fresh_request_id();
  return request;
}

// What the connection takes from an exchange in one go.
struct Output {
  std::optional<HttpResponse> whole;
  std::optional<HttpHeaders> stream_head;
  std::string data;
  bool ended = false;
  bool abandoned = false;  // the handler went away without finishing
};

// One request's answer, between the threads that make it and the connection that sends it.
class Exchange : public ResponseWriter, public std::enable_shared_from_this<Exchange> {
 public:
  explicit Exchange(asio::any_io_executor strand) : strand_(strand), wake_(strand) {}

  void send(HttpResponse response) override {
    {
      std::lock_guard lock(mutex_);
      if (answered_) return;
      answered_ = true;
      finished_ = true;
      output_.whole = std::move(response);
    }
    notify();
  }

  void start_stream(HttpHeaders headers) override {
    {
      std::lock_guard lock(mutex_);
      if (answered_) return;
      answered_ = true;
      output_.stream_head = std::move(headers);
    }
    notify();
  }

  void write(std::string_view data) override {
    {
      std::lock_guard lock(mutex_);
      if (finished_ || disconnected_) return;
      output_.data += data;
      queued_bytes_ = output_.data.size() + in_flight_bytes_;
    }
    notify();
  }

  void end_stream() override {
    {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      finished_ = true;
      output_.ended = true;
    }
    notify();
  }

  size_t queued_bytes() const override {
    std::lock_guard lock(mutex_);
    return queued_bytes_;
  }

  bool disconnected() const override {
    std::lock_guard lock(mutex_);
    return disconnected_;
  }

  void on_disconnect(std::function<void()> callback) override {
    {
      std::lock_guard lock(mutex_);
      if (!disconnected_) {
        disconnect_callback_ = std::move(callback);
        return;
      }
    }
    post(std::move(callback));
  }

  void on_written(std::function<void()> callback) override {
    std::lock_guard lock(mutex_);
    written_callback_ = std::move(callback);
  }

  void post(std::function<void()> task) override {
    asio::post(strand_, [self = shared_from_this(), task = std::move(task)] { task(); });
  }

  // The handler's last reference is gone.
  void abandon() {
    {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      finished_ = true;
      if (answered_) {
        output_.abandoned = true;
      } else {
        output_.whole = error_response(500, "the server dropped this request");
      }
      answered_ = true;
    }
    notify();
  }

  // Below: the connection's side, on the strand.

  Output take() {
    std::lock_guard lock(mutex_);
    notified_ = false;
    Output taken;
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

  void written() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      in_flight_bytes_ = 0;
      queued_bytes_ = output_.data.size();
      callback = written_callback_;
    }
    if (callback) callback();
  }

  void disconnect() {
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

  // The answer is complete: callbacks (and what they hold) are let go.
  void close() {
    std::lock_guard lock(mutex_);
    finished_ = true;
    disconnect_callback_ = nullptr;
    written_callback_ = nullptr;
  }

  // Waits for output; false if the time passed without any.
  asio::awaitable<bool> wait(Milliseconds limit) {
    {
      std::lock_guard lock(mutex_);
      if (notified_ || disconnected_) co_return true;
    }
    wake_.expires_after(limit);
    const auto [error] = co_await wake_.async_wait(kAwait);
    co_return error == asio::error::operation_aborted;
  }

 private:
  void notify() {
    {
      std::lock_guard lock(mutex_);
      if (notified_) return;
      notified_ = true;
    }
    asio::post(strand_, [self = shared_from_this()] { self->wake_.cancel(); });
  }

  const asio::any_io_executor strand_;
  asio::steady_timer wake_;  // strand only

  mutable std::mutex mutex_;  // guards all below
  Output output_;
  size_t queued_bytes_ = 0;
  size_t in_flight_bytes_ = 0;
  bool answered_ = false;  // send or start_stream was called
  bool finished_ = false;  // nothing may follow
  bool disconnected_ = false;
  bool notified_ = false;  // since the last take
  std::function<void()> disconnect_callback_;
  std::function<void()> written_callback_;
};

// The handler's reference: when the last copy goes, an unanswered request gets a 500.
std::shared_ptr<ResponseWriter> handle_of(const std::shared_ptr<Exchange>& exchange) {
  return std::shared_ptr<ResponseWriter>(exchange.get(),
                                         [exchange](ResponseWriter*) { exchange->abandon(); });
}

// Threads for work that may take milliseconds, behind one bounded queue.
class WorkerPool {
 public:
  WorkerPool(int num_threads, size_t max_queued) : queue_(max_queued) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] {
        while (auto task = queue_.pop()) (*task)();
      });
    }
  }
  ~WorkerPool() { stop(); }

  bool submit(std::function<void()> task) { return queue_.try_push(std::move(task)); }

  void stop() {
    queue_.close();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

class Connection;

// What connections share with their server.
struct Shared {
  Shared(const HttpOptions& given, HttpHandler handle)
      : options(given),
        handler(std::move(handle)),
        workers(given.num_workers, static_cast<size_t>(given.max_queued_work)) {}

  void run_handler(HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
    try {
      handler(std::move(request), writer);
    } catch (const std::exception& error) {
      LOG(kError, "a request handler failed: {}", error.what());
      writer->send(error_response(500, "the server failed to handle this request"));
    }
  }

  const HttpOptions options;
  const HttpHandler handler;
  std::atomic<bool> closing = false;
  std::mutex mutex;                 // guards connections
  std::condition_variable changed;  // a connection ended
  std::map<Connection*, std::weak_ptr<Connection>> connections;
  WorkerPool workers;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared)
      : shared_(shared), socket_(std::move(socket)), deadline_(socket_.get_executor()) {}

  ~Connection() {
    std::lock_guard lock(shared_.mutex);
    shared_.connections.erase(this);
    shared_.changed.notify_all();
  }

  void start(bool refuse) {
    asio::co_spawn(
        socket_.get_executor(),
        [self = shared_from_this(), refuse]() -> asio::awaitable<void> {
          if (refuse) {
            co_await self->refuse();
          } else {
            co_await self->serve();
          }
          self->close();
        },
        [self = shared_from_this()](std::exception_ptr error) {
          if (error) LOG(kError, "a connection ended with an unexpected failure");
        });
  }

  // Any thread.
  void close_if_idle() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (self->idle_) self->close();
    });
  }
  void close_now() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
  }

 private:
  void close() {
    error_code ignored;
    socket_.close(ignored);
    deadline_.cancel();
    if (exchange_) exchange_->disconnect();
  }

  // Cancels the socket's operations when the time passes, unless armed again or disarmed.
  void arm(Milliseconds after) {
    expired_ = false;
    deadline_.expires_after(after);
    deadline_.async_wait([self = shared_from_this()](const error_code& error) {
      if (error || self->deadline_.expiry() > Clock::now()) return;
      self->expired_ = true;
      error_code ignored;
      self->socket_.cancel(ignored);
    });
  }
  void disarm() { deadline_.expires_at(Clock::time_point::max()); }

  asio::awaitable<void> refuse() {
    HttpResponse response = error_response(503, "too many connections");
    response.headers.emplace_back("Retry-After", "1");
    const std::string bytes = render(response, fresh_request_id(), false, false);
    co_await write(bytes);
  }

  asio::awaitable<void> serve() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
    bool go_on = true;
    while (go_on && !shared_.closing) {
      if (buffer_.size() == 0) {
        const bool arrived = co_await wait_for_request();
        if (!arrived) co_return;
      }
      Parser parser;
      configure(parser, shared_.options);
      const bool complete = co_await read_request(parser);
      if (!complete) co_return;
      const bool keep_alive = parser.get().keep_alive();
      chunked_ = parser.get().version() >= 11;
      head_only_ = parser.get().method() == http::verb::head;
      Result<HttpRequest> request = to_request(std::move(parser));
      if (!request.ok()) {
        const HttpResponse refusal = error_response(400, request.error().message);
        co_await fail(refusal);
        co_return;
      }
      const bool sent = co_await answer(request.value(), keep_alive);
      go_on = sent && keep_alive;
    }
    co_await linger();
  }

  // Between requests: nothing has arrived yet.
  asio::awaitable<bool> wait_for_request() {
    idle_ = true;
    arm(shared_.options.idle_timeout);
    const auto [error, count] =
        co_await socket_.async_read_some(buffer_.prepare(16 * 1024), kAwait);
    disarm();
    idle_ = false;
    if (error) co_return false;
    buffer_.commit(count);
    co_return true;
  }

  // False: the connection is done for (an answer was sent where one is due).
  asio::awaitable<bool> read_request(Parser& parser) {
    arm(shared_.options.header_deadline);
    const auto [head_error, head_bytes] =
        co_await http::async_read_header(socket_, buffer_, parser, kAwait);
    disarm();
    if (head_error) {
      co_await fail_read(head_error, "the head of the request took too long");
      co_return false;
    }
    const Status checked = check_head(parser, shared_.options);
    if (!checked.ok()) {
      const HttpResponse refusal =
          error_response(status_of_head_error(checked.error()), checked.error().message);
      co_await fail(refusal);
      co_return false;
    }
    if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      const bool sent = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
      if (!sent) co_return false;
    }
    const bool complete = co_await read_body(parser);
    co_return complete;
  }

  // A body must keep up 1 KiB/s after a grace, and end before the deadline: both absolute, so that
  // a byte now and then does not hold a connection.
  asio::awaitable<bool> read_body(Parser& parser) {
    parser.eager(true);
    const auto begin = Clock::now();
    size_t total = 0;
    while (!parser.is_done()) {
      const Milliseconds spent = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
      const Milliseconds earned = shared_.options.body_grace + Milliseconds(total * 1000 / 1024);
      arm(std::max(Milliseconds(0), std::min(earned, shared_.options.body_deadline) - spent));
      const auto [error, count] = co_await http::async_read_some(socket_, buffer_, parser, kAwait);
      disarm();
      total += count;
      if (error) {
        co_await fail_read(error, "the body of the request arrived too slowly");
        co_return false;
      }
    }
    co_return true;
  }

  asio::awaitable<void> fail_read(error_code error, std::string_view timeout_message) {
    const int status = expired_ ? 408 : status_of_read_error(error);
    if (status == 0) co_return;
    const HttpResponse refusal = expired_ ? error_response(status, timeout_message)
                                          : response_to_read_error(status, error, shared_.options);
    co_await fail(refusal);
  }

  // Answers a request that cannot be read to its end; the connection cannot be used after it.
  asio::awaitable<void> fail(const HttpResponse& response) {
    LOG(kDebug, "refused a request with status {}", response.status);
    const std::string bytes = render(response, fresh_request_id(), false, false);
    const bool sent = co_await write(bytes);
    if (sent) co_await linger();
  }

  // Closing with unread bytes resets the connection and can destroy the answer on its way: so tell
  // the client that nothing follows and read what it still sends, within limits.
  asio::awaitable<void> linger() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    const auto end = Clock::now() + kLingerTime;
    size_t total = 0;
    while (total < kMaxLingerBytes && !shared_.closing) {
      buffer_.clear();
      const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
      if (left <= Milliseconds(0)) co_return;
      idle_ = true;
      arm(left);
      const auto [error, count] =
          co_await socket_.async_read_some(buffer_.prepare(64 * 1024), kAwait);
      disarm();
      idle_ = false;
      if (error) co_return;
      total += count;
    }
  }

  asio::awaitable<bool> answer(HttpRequest& request, bool keep_alive) {
    exchange_ = std::make_shared<Exchange>(socket_.get_executor());
    const std::string request_id = request.request_id;
    auto writer = handle_of(exchange_);
    if (request.body.empty()) {
      shared_.run_handler(std::move(request), std::move(writer));
    } else {
      auto shared_request = std::make_shared<HttpRequest>(std::move(request));
      const bool queued =
          shared_.workers.submit([this, self = shared_from_this(), shared_request, writer] {
            shared_.run_handler(std::move(*shared_request), writer);
          });
      if (!queued) {
        HttpResponse busy = error_response(503, "too many requests are waiting to be read");
        busy.headers.emplace_back("Retry-After", "1");
        writer->send(std::move(busy));
      }
      writer.reset();
    }
    watch();
    const bool good = co_await send_output(request_id, keep_alive);
    if (!good) exchange_->disconnect();
    exchange_->close();
    exchange_.reset();
    error_code ignored;
    socket_.cancel(ignored);  // the watch
    co_return good;
  }

  // While an answer is made: notices that the client has left, keeps what it sends ahead.
  void watch() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(),
                                                exchange = exchange_](const error_code& error) {
      if (error || self->exchange_ != exchange) return;
      error_code read_error;
      const size_t count = self->socket_.read_some(self->buffer_.prepare(4096), read_error);
      if (read_error == asio::error::would_block) return self->watch();
      if (read_error) return exchange->disconnect();
      self->buffer_.commit(count);
      if (self->buffer_.size() < kMaxPipelinedBytes) self->watch();
    });
  }

  // True: the whole answer was sent and the connection is usable.
  asio::awaitable<bool> send_output(const std::string& request_id, bool keep_alive) {
    const std::shared_ptr<Exchange> exchange = exchange_;
    bool streaming = false;
    while (true) {
      if (exchange->disconnected()) co_return false;
      Output output = exchange->take();
      if (output.whole) {
        const bool stay = keep_alive && !shared_.closing;
        const std::string whole = render(*output.whole, request_id, stay, head_only_);
        const bool sent = co_await write(whole);
        const bool usable = sent && stay;
        co_return usable;
      }
      std::string bytes;
      if (output.stream_head) {
        streaming = true;
        bytes = render_stream_head(*output.stream_head, request_id, keep_alive);
      }
      append_chunk(bytes, output.data);
      if (output.ended && chunked_) bytes += "0\r\n\r\n";
      if (!bytes.empty()) {
        const bool sent = co_await write(bytes);
        if (!sent) co_return false;
      }
      exchange->written();
      if (output.ended) co_return chunked_;
      if (output.abandoned) co_return false;
      if (!bytes.empty()) continue;
      const bool woken = co_await exchange->wait(shared_.options.heartbeat);
      if (!woken && streaming) {
        std::string beat;
        append_chunk(beat, ": still here\n\n");
        const bool sent = co_await write(beat);
        if (!sent) co_return false;
      }
    }
  }

  void append_chunk(std::string& bytes, std::string_view data) const {
    if (data.empty()) return;
    if (chunked_) fmt::format_to(std::back_inserter(bytes), "{:x}\r\n", data.size());
    bytes += data;
    if (chunked_) bytes += "\r\n";
  }

  asio::awaitable<bool> write(std::string_view bytes) {
    arm(shared_.options.write_timeout);
    const auto [error, count] =
        co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), kAwait);
    disarm();
    co_return !error;
  }

  static void append_headers(std::string& out, const HttpHeaders& headers) {
    for (const auto& [name, value] : headers) {
      fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
    }
  }

  static std::string render(const HttpResponse& response, const std::string& request_id,
                            bool keep_alive, bool head_only) {
    std::string out =
        fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nx-request-id: {}\r\nConnection: {}\r\n",
                    response.status, reason_phrase(response.status), http_date(), request_id,
                    keep_alive ? "keep-alive" : "close");
    if (!response.content_type.empty()) {
      fmt::format_to(std::back_inserter(out), "Content-Type: {}\r\n", response.content_type);
    }
    if (response.status != 204 && response.status != 304) {
      fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", response.body.size());
    }
    append_headers(out, response.headers);
    out += "\r\n";
    if (!head_only) out += response.body;
    return out;
  }

  std::string render_stream_head(const HttpHeaders& headers, const std::string& request_id,
                                 bool keep_alive) const {
    std::string out = fmt::format(
        "HTTP/1.1 200 OK\r\nDate: {}\r\nx-request-id: {}\r\nConnection: {}\r\n"
        "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
        "X-Accel-Buffering: no\r\n",
        http_date(), request_id, keep_alive && chunked_ ? "keep-alive" : "close");
    if (chunked_) out += "Transfer-Encoding: chunked\r\n";
    append_headers(out, headers);
    out += "\r\n";
    return out;
  }

  Shared& shared_;
  // Everything below is used on the strand of the socket only.
  tcp::socket socket_;
  asio::steady_timer deadline_;
  boost::beast::flat_buffer buffer_;  // bytes that have arrived and were not used yet
  std::shared_ptr<Exchange> exchange_;
  bool expired_ = false;    // the deadline cancelled the last operation
  bool idle_ = false;       // may be closed without breaking an answer
  bool chunked_ = true;     // the client speaks HTTP/1.1
  bool head_only_ = false;  // HEAD
};

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(const HttpOptions& options, HttpHandler handler)
      : shared_(options, std::move(handler)),
        work_(asio::make_work_guard(io_)),
        acceptor_(asio::make_strand(io_)),
        retry_(acceptor_.get_executor()) {}

  ~HttpServerImpl() override { stop(Milliseconds(0)); }

  Status open() {
    error_code error;
    const std::string& host = shared_.options.host;
    const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
    if (error) {
      return make_error(ErrorCode::kInvalidArgument,
                        "host is '{}', but it must be an IP address or localhost", host);
    }
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(shared_.options.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) {
      return Error{ErrorCode::kIo,
                   fmt::format("cannot listen on {} port {}: {}", host, shared_.options.port,
                               error.message()),
                   "choose another port, or 0 for any free one",
                   {}};
    }
    port_ = acceptor_.local_endpoint(error).port();
    return {};
  }

  int port() const override { return port_; }

  void start() override {
    asio::co_spawn(acceptor_.get_executor(), accept_all(), asio::detached);
    for (int i = 0; i < shared_.options.num_threads; ++i) {
      threads_.emplace_back([this] { run_io(); });
    }
  }

  void stop(Milliseconds grace) override {
    if (shared_.closing.exchange(true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
    });
    for_each_connection([](Connection& connection) { connection.close_if_idle(); });
    wait_until_empty(threads_.empty() ? Milliseconds(0) : grace);
    for_each_connection([](Connection& connection) { connection.close_now(); });
    wait_until_empty(threads_.empty() ? Milliseconds(0) : Milliseconds(1'000));
    shared_.workers.stop();
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  int num_connections() const override {
    std::lock_guard lock(shared_.mutex);
    return static_cast<int>(shared_.connections.size());
  }

 private:
  void run_io() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        LOG(kError, "an I/O task failed: {}", error.what());
      }
    }
  }

  asio::awaitable<void> accept_all() {
    while (!shared_.closing) {
      auto [error, socket] =
          co_await acceptor_.async_accept(asio::any_io_executor(asio::make_strand(io_)), kAwait);
      if (error == asio::error::operation_aborted) co_return;
      if (error) {  // out of descriptors, most likely: let some close
        LOG(kWarning, "cannot accept a connection: {}", error.message());
        retry_.expires_after(Milliseconds(100));
        co_await retry_.async_wait(kAwait);
        continue;
      }
      auto connection = std::make_shared<Connection>(std::move(socket), shared_);
      bool refuse = false;
      {
        std::lock_guard lock(shared_.mutex);
        refuse = static_cast<int>(shared_.connections.size()) >= shared_.options.max_connections;
        shared_.connections.emplace(connection.get(), connection);
      }
      connection->start(refuse);
    }
  }

  template <typename Visit>
  void for_each_connection(Visit visit) {
    std::vector<std::shared_ptr<Connection>> alive;
    {
      std::lock_guard lock(shared_.mutex);
      for (const auto& [key, weak] : shared_.connections) {
        if (auto connection = weak.lock()) alive.push_back(std::move(connection));
      }
    }
    for (const auto& connection : alive) visit(*connection);
  }

  void wait_until_empty(Milliseconds limit) {
    std::unique_lock lock(shared_.mutex);
    shared_.changed.wait_for(lock, limit, [this] { return shared_.connections.empty(); });
  }

  mutable Shared shared_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::vector<std::thread> threads_;
  int port_ = 0;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       HttpHandler handler) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(handler));
  TRY(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

Result<HttpRequest> parse_request(std::string_view bytes, const HttpOptions& options) {
  Parser parser;
  configure(parser, options);
  parser.eager(true);
  error_code error;
  while (!bytes.empty() && !parser.is_done()) {
    const bool had_head = parser.is_header_done();
    const size_t used = parser.put(asio::buffer(bytes.data(), bytes.size()), error);
    if (error) break;
    bytes.remove_prefix(used);
    if (!had_head && parser.is_header_done()) TRY(check_head(parser, options));
    if (used == 0) break;
  }
  if (error == http::error::need_more || (!error && !parser.is_done())) {
    return bad_request("the request is incomplete");
  }
  if (error) {
    const int status = status_of_read_error(error);
    return Error{
        status == 431 || status == 413 ? ErrorCode::kExhausted : ErrorCode::kInvalidArgument,
        error.message(),
        {},
        {}};
  }
  return to_request(std::move(parser));
}

}  // namespace headrace
