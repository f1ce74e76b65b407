#include "server/http.h"

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/queue.h"
#include "server/http_exchange.h"
#include "server/http_message.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::beast::error_code;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kMaxPipelinedBytes =
    64 * 1024;  // of the next requests, kept while one is answered
constexpr size_t kMaxLingerBytes = 64 * 1024 * 1024;
constexpr Milliseconds kLingerTime{5'000};

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
    const std::string bytes = render_response(response, fresh_request_id(), false, false);
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
      HttpParser parser;
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
  asio::awaitable<bool> read_request(HttpParser& parser) {
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
  asio::awaitable<bool> read_body(HttpParser& parser) {
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
    const std::string bytes = render_response(response, fresh_request_id(), false, false);
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
      HttpOutput output = exchange->take();
      if (output.whole) {
        const bool stay = keep_alive && !shared_.closing;
        const std::string whole = render_response(*output.whole, request_id, stay, head_only_);
        const bool sent = co_await write(whole);
        const bool usable = sent && stay;
        co_return usable;
      }
      std::string bytes;
      if (output.stream_head) {
        streaming = true;
        bytes = render_stream_head(*output.stream_head, request_id, keep_alive, chunked_);
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

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       HttpHandler handler) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(handler));
  TRY(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace headrace
