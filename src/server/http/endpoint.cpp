#include "server/http/endpoint.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstring>

namespace headrace {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Removes a socket file that no process listens at.
Status make_way(const asio::local::stream_protocol::endpoint& address, const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return {};
  asio::io_context io;
  asio::local::stream_protocol::socket probe(io);
  error_code error;
  probe.connect(address, error);
  if (error != asio::error::connection_refused || !S_ISSOCK(info.st_mode)) {
    return make_error(ErrorCode::kIo, "cannot listen at '{}': {}", path,
                      S_ISSOCK(info.st_mode) ? "another server does" : "a file is there");
  }
  ::unlink(path.c_str());
  return {};
}

Result<Endpoint> unix_endpoint(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return make_error(ErrorCode::kIo, "the path of a socket has {} bytes, but at most {} fit",
                      path.size(), sizeof(sockaddr_un::sun_path) - 1);
  }
  const asio::local::stream_protocol::endpoint address(path);
  TRY(make_way(address, path));
  return Endpoint{address, path, true};
}

std::optional<asio::ip::address> ip_of(const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    return asio::ip::address_v4(ntohl(in.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    asio::ip::address_v6::bytes_type bytes{};
    std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
    return asio::ip::address_v6(bytes, in.sin6_scope_id);
  }
  return std::nullopt;
}

PeerAddress unix_peer(int descriptor) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return {"unknown user", std::nullopt, false};
  }
  return {fmt::format("uid {}", who.uid), std::nullopt, who.uid == 0 || who.uid == ::geteuid()};
}

}  // namespace

Result<Endpoint> endpoint_of(const HttpOptions& options) {
  if (!options.unix_path.empty()) return unix_endpoint(options.unix_path);
  const std::string& host = options.host;
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    return make_error(ErrorCode::kIo, "host is '{}', but it must be an IP address or localhost",
                      host);
  }
  return Endpoint{tcp::endpoint(address, static_cast<uint16_t>(options.port)),
                  fmt::format("{} port {}", host, options.port), false};
}

Error cannot_listen(const Endpoint& endpoint, const error_code& error) {
  const bool is_foreign = error == boost::system::errc::address_not_available;
  std::string hint = is_foreign ? "choose an address of this machine, or 0.0.0.0 for all"
                                : "choose another port, or 0 for any free one";
  if (endpoint.is_unix) hint = "choose a path in a folder that this user may write";
  return Error{ErrorCode::kIo,
               fmt::format("cannot listen on {}: {}", endpoint.text, error.message()),
               std::move(hint),
               {}};
}

int port_of(const asio::generic::stream_protocol::endpoint& address) {
  const sockaddr* data = address.data();
  uint16_t port = 0;  // at the same place in both families
  if (data->sa_family != AF_INET && data->sa_family != AF_INET6) return 0;
  std::memcpy(&port, reinterpret_cast<const char*>(data) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return ntohs(port);
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) ::chmod(path_.c_str(), S_IRUSR | S_IWUSR);
}

SocketFile::~SocketFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

PeerAddress peer_of(Transport::Socket& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (::getpeername(socket.native_handle(), address, &size) != 0) return {"unknown", {}, true};
  if (address->sa_family == AF_UNIX) return unix_peer(socket.native_handle());
  const auto ip = ip_of(address, size);
  return {ip ? ip->to_string() : "unknown", ip, true};
}

}  // namespace headrace
