#include "server/http/http_server.h"

#include <pthread.h>
#include <sys/socket.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <csignal>
#include <thread>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/endpoint.h"
#include "server/http/io_place.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using Socket = Transport::Socket;
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
        retry_(acceptor_.get_executor()) {
    shared_.place = std::make_shared<IoPlace>(io_);
  }

  ~HttpServerImpl() override { stop(Milliseconds(0)); }

  Status open() {
    if (shared_.options.tls.given()) TRY(reload_tls());
    const Endpoint endpoint = TRY(endpoint_of(shared_.options));
    error_code error;
    acceptor_.open(endpoint.address.protocol(), error);
    if (!error) acceptor_.set_option(Acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint.address, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) return cannot_listen(endpoint, error);
    port_ = port_of(acceptor_.local_endpoint(error));
    file_ = SocketFile(shared_.options.unix_path);
    return {};
  }

  Status reload_tls() override {
    TlsContext context = TRY(load_tls(shared_.options.tls));
    std::lock_guard lock(shared_.mutex);
    tls_ = std::move(context);
    return {};
  }

  int port() const override { return port_; }

  void start() override {
    std::lock_guard lock(starting_);
    if (shared_.closing) return;
    asio::co_spawn(acceptor_.get_executor(), accept_all(), asio::detached);
    for (int i = 0; i < shared_.options.num_threads; ++i) {
      threads_.emplace_back([this] { run_io(); });
    }
  }

  void stop(Milliseconds grace) override {
    if (shared_.closing.exchange(true)) return;
    std::lock_guard lock(starting_);  // a start that came first has all its threads
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
  // A write to a client that left is an error of that connection, not a signal to the process.
  static void block_broken_pipes() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  }

  void run_io() {
    block_broken_pipes();
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

  TlsContext tls() const {
    std::lock_guard lock(shared_.mutex);
    return tls_;
  }

  void take_in(Socket socket) {
    const PeerAddress peer = peer_of(socket);
    if (!peer.is_trusted) {
      LOG(kWarning, "{} may not use the administration's socket", peer.text);
      return;
    }
    const std::string key = peer.ip ? counting_key(*peer.ip, shared_.options) : std::string();
    auto connection = std::make_shared<Connection>(Transport(std::move(socket), tls()), shared_,
                                                   Connection::Peer{peer.text, key});
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
  Acceptor acceptor_;
  asio::steady_timer retry_;
  std::mutex starting_;  // guards threads_, which do not change any more once it is closing
  std::vector<std::thread> threads_;
  int port_ = 0;
  SocketFile file_;
  TlsContext tls_;  // guarded by shared_.mutex
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       HttpService service) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(service));
  TRY(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace headrace
