// Transport: the bytes of one connection, plain or through TLS, over TCP or a Unix socket. Inside
// this folder only. On the strand of its socket.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <memory>
#include <string_view>

#include "server/http/tls.h"

struct ssl_st;

namespace headrace {

class Transport {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using error_code = boost::system::error_code;
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;

  // tls: null for plain bytes.
  Transport(Socket socket, const TlsContext& tls);

  Socket& socket() { return socket_; }
  bool is_secure() const { return ssl_ != nullptr; }
  // Before the first byte of a secure transport; does nothing for a plain one. The socket does not
  // block from here on.
  Awaitable<error_code> open();
  // There are bytes for read_some() that the socket does not tell of.
  bool has_pending() const;
  // At once; would_block: nothing is there. eof: the client sends no more.
  size_t read_some(char* bytes, size_t limit, error_code& error);
  // Waits until some of the bytes are taken, of `first` before `second`.
  struct Written {
    error_code error;
    size_t count = 0;
  };
  Awaitable<Written> write_some(std::string_view first, std::string_view second);
  // Tells the client that nothing follows; it may still send.
  void end_output();

 private:
  struct FreeSsl {
    void operator()(ssl_st* ssl) const;
  };
  Awaitable<Written> write_secure(std::string_view bytes);
  void begin_call(error_code& error) const;
  error_code error_of(int result) const;
  Awaitable<error_code> wait_for(int wanted);

  Socket socket_;
  std::unique_ptr<ssl_st, FreeSsl> ssl_;
  bool broken_ = false;  // by a failure of TLS: not even an end is said
};

}  // namespace headrace
