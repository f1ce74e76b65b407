// What tests of HTTP share: a blocking client that shows the bytes.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace headrace::test {

struct ClientResponse {
  int status = 0;
  std::string head;  // with the status line
  std::string body;  // chunks joined
  bool complete = false;
};

// A blocking HTTP client that shows the bytes. Reads give up after ten seconds.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval limit{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void limit_receive_buffer(int bytes) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  void send_no_more() { ::shutdown(socket_, SHUT_WR); }
  bool was_reset() const { return was_reset_; }  // seen by receive_more()
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // False at the end of the stream or after the time limit.
  bool receive_more() {
    char bytes[16384];
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
    if (count < 0 && errno == ECONNRESET) was_reset_ = true;
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }
  bool receive_until(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!receive_more()) return false;
    }
    return true;
  }
  // True if the server closes without sending anything more.
  bool at_end() {
    while (receive_more()) continue;
    return buffer_.empty();
  }
  const std::string& buffered() const { return buffer_; }

  ClientResponse receive(bool head_only = false) {
    ClientResponse response;
    if (!receive_until("\r\n\r\n")) return response;
    const size_t end = buffer_.find("\r\n\r\n") + 4;
    response.head = buffer_.substr(0, end);
    buffer_.erase(0, end);
    response.status = std::atoi(response.head.c_str() + 9);
    if (response.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      response.complete = receive_chunks(response.body);
      return response;
    }
    const size_t length_at = response.head.find("Content-Length: ");
    if (length_at == std::string::npos || head_only) {
      response.complete = true;
      return response;
    }
    const size_t length = std::stoul(response.head.substr(length_at + 16));
    while (buffer_.size() < length && receive_more()) continue;
    response.complete = buffer_.size() >= length;
    response.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return response;
  }

  ClientResponse get(const std::string& path, const std::string& method = "GET",
                     const std::string& headers = "") {
    send(method + " " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
    return receive(method == "HEAD");
  }
  ClientResponse post(const std::string& path, const std::string& body,
                      const std::string& headers = "") {
    send(fmt::format("POST {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n{}\r\n", path,
                     body.size(), headers) +
         body);
    return receive();
  }

 private:
  bool receive_chunks(std::string& body) {
    while (true) {
      while (buffer_.find("\r\n") == std::string::npos) {
        if (!receive_more()) return false;
      }
      const size_t line = buffer_.find("\r\n");
      const size_t length = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + length + 2) {
        if (!receive_more()) return false;
      }
      body += buffer_.substr(line + 2, length);
      buffer_.erase(0, line + 2 + length + 2);
      if (length == 0) return true;
    }
  }

  int socket_ = -1;
  bool was_reset_ = false;
  bool connected_ = false;
  std::string buffer_;
};

// Waits for a condition that another thread makes true; false after ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 10'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace headrace::test
