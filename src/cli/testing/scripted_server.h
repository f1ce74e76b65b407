// For tests: an HTTP server that sends the very bytes a test gives it, so also those that no good
// server sends: cut lines, broken bodies, silence.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace headrace::testing {

struct SeenRequest {
  std::string line;  // "GET /v1/models HTTP/1.1"
  std::string head;  // with the line
  std::string body;
};

// A whole answer.
inline std::string http_answer(int status, std::string_view body) {
  return fmt::format("HTTP/1.1 {} Scripted\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                     status, body.size(), body);
}

// The head of an answer whose body ends with the connection.
inline std::string http_stream() { return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"; }

// One connection at a time, one request each; closes it after the last piece.
class ScriptedServer {
 public:
  // Pieces arrive one after the other. kSilence: nothing more until the client leaves.
  using Script = std::function<std::vector<std::string>(const SeenRequest&)>;
  static constexpr std::string_view kSilence = "<silence>";

  explicit ScriptedServer(Script script)
      : script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // A proxy in the environment must not take what is meant for this server.
    ::setenv("NO_PROXY", "127.0.0.1", 1);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_, 16);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  explicit ScriptedServer(std::string answer)
      : ScriptedServer([answer = std::move(answer)](const SeenRequest&) {
          return std::vector<std::string>{answer};
        }) {}
  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::vector<SeenRequest> seen() const {
    std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void run() {
    while (true) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      const int one = 1;
      ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      serve(connection);
      ::close(connection);
    }
  }

  void serve(int connection) {
    std::string bytes;
    const auto more = [&] {
      char chunk[4096];
      const ssize_t count = ::recv(connection, chunk, sizeof chunk, 0);
      if (count > 0) bytes.append(chunk, static_cast<size_t>(count));
      return count > 0;
    };
    while (bytes.find("\r\n\r\n") == std::string::npos) {
      if (!more()) return;
    }
    const size_t head_size = bytes.find("\r\n\r\n") + 4;
    const size_t length_at = bytes.find("Content-Length: ");
    const size_t length = length_at < head_size ? std::stoul(bytes.substr(length_at + 16)) : 0;
    while (bytes.size() < head_size + length) {
      if (!more()) return;
    }
    const SeenRequest request{bytes.substr(0, bytes.find("\r\n")), bytes.substr(0, head_size),
                              bytes.substr(head_size)};
    {
      std::lock_guard lock(mutex_);
      seen_.push_back(request);
    }
    for (const std::string& piece : script_(request)) {
      if (piece == kSilence) {
        while (more()) continue;
        return;
      }
      ::send(connection, piece.data(), piece.size(), MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const Script script_;
  const int listener_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<SeenRequest> seen_;
  std::thread thread_;  // last
};

}  // namespace headrace::testing
