#include "server/http/http_server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <thread>

#include "base/log.h"
#include "server/http/connection.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;

// What the limit per address counts a client under: its address, or the 64-bit network of an IPv6
// one, which one customer holds whole. Empty: not counted.
std::string counting_key(const asio::ip::address& address, const HttpOptions& options) {
  const bool is_mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  const asio::ip::address plain =
      is_mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()) : address;
  if (options.max_connections_per_address == 0) return {};
  if (plain.is_loopback() && !options.count_loopback) return {};
  if (plain.is_v4()) return plain.to_string();
  auto bytes = plain.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return asio::ip::address_v6(bytes).to_string();
}

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(const HttpOptions& options, HttpService service)
      : shared_(options, std::move(service)),
        work_(asio::make_work_guard(io_)),
        acceptor_(asio::make_strand(io_)),
        retry_(acceptor_.get_executor()) {}

  ~HttpServerImpl() override { stop(Milliseconds(0)); }

  Status open() {
    error_code error;
    const std::string& host = shared_.options.host;
    const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
    if (error) {
      return make_error(ErrorCode::kIo, "host is '{}', but it must be an IP address or localhost",
                        host);
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
                   error == boost::system::errc::address_not_available
                       ? "choose an address of this machine, or 0.0.0.0 for all"
                       : "choose another port, or 0 for any free one",
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
    shared_.workers.close();
    shared_.large_workers.close();
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
    shared_.large_workers.stop();
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
      take_in(std::move(socket));
    }
  }

  void take_in(tcp::socket socket) {
    error_code ignored;
    const asio::ip::address address = socket.remote_endpoint(ignored).address();
    const std::string key = counting_key(address, shared_.options);
    auto connection = std::make_shared<Connection>(std::move(socket), shared_,
                                                   Connection::Peer{address.to_string(), key});
    std::string refusal;
    {
      std::lock_guard lock(shared_.mutex);
      const bool is_full =
          static_cast<int>(shared_.connections.size()) >= shared_.options.max_connections;
      shared_.connections.emplace(connection.get(), connection);
      const int num_of_address = key.empty() ? 0 : ++shared_.num_of_address[key];
      if (is_full) refusal = "too many connections";
      if (num_of_address > shared_.options.max_connections_per_address) {
        refusal = "too many connections from this address";
      }
    }
    if (refusal.empty()) return connection->start();
    shared_.counters.refused_connections.add();
    connection->refuse(std::move(refusal));
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

  mutable HttpShared shared_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::vector<std::thread> threads_;
  int port_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       HttpService service) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(service));
  TRY(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace headrace
