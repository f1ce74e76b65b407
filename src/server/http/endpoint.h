// endpoint: where a server listens, and who is at the other end. Inside this folder only.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/address.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/http/http.h"
#include "server/http/transport.h"

namespace headrace {

struct Endpoint {
  boost::asio::generic::stream_protocol::endpoint address;
  std::string text;  // "127.0.0.1 port 80"
  bool is_unix = false;
};

// kIo: host is no address, or another server answers at the Unix path. A socket file that nobody
// listens at any more is removed.
Result<Endpoint> endpoint_of(const HttpOptions& options);
// kIo, with what to do.
Error cannot_listen(const Endpoint& endpoint, const boost::system::error_code& error);
int port_of(const boost::asio::generic::stream_protocol::endpoint& address);

// The file of a Unix socket, for its owner alone; gone with the server.
class SocketFile {
 public:
  SocketFile() = default;
  explicit SocketFile(std::string path);  // empty: none
  SocketFile(SocketFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  SocketFile& operator=(SocketFile&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~SocketFile();

 private:
  std::string path_;
};

struct PeerAddress {
  std::string text;                            // for the log: an IP address, or "uid 1000"
  std::optional<boost::asio::ip::address> ip;  // nothing: a Unix socket
  bool is_trusted = true;                      // of a Unix socket: this user or root
};
PeerAddress peer_of(Transport::Socket& socket);

}  // namespace headrace
