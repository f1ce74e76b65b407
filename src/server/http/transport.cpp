#include "server/http/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <cerrno>

#include "base/check.h"
#include "server/http/exchange.h"

namespace headrace {
namespace {

namespace asio = boost::asio;

constexpr size_t kMaxRecordBytes = 16 * 1024;

}  // namespace

void Transport::FreeSsl::operator()(ssl_st* ssl) const { SSL_free(ssl); }

Transport::Transport(Socket socket, const TlsContext& tls) : socket_(std::move(socket)) {
  if (tls == nullptr) return;
  ssl_.reset(SSL_new(tls.get()));
  CHECK(ssl_ != nullptr && SSL_set_fd(ssl_.get(), socket_.native_handle()) == 1,
        "TLS has no memory for a connection");
  SSL_set_accept_state(ssl_.get());
}

// OpenSSL knows the socket by its number alone, which is another's once it is closed.
void Transport::begin_call(error_code& error) const {
  error = socket_.is_open() ? error_code() : error_code(asio::error::bad_descriptor);
  ERR_clear_error();
  errno = 0;
}

// What a call of OpenSSL came to; would_block: SSL_want() says for what it waits.
Transport::error_code Transport::error_of(int result) const {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_NONE:
      return {};
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    case SSL_ERROR_SYSCALL:
      if (errno != 0) return {errno, boost::system::system_category()};
      [[fallthrough]];
    default:  // a breach of the protocol, or an end without a word
      return asio::error::connection_reset;
  }
}

Transport::Awaitable<Transport::error_code> Transport::wait_for(int wanted) {
  const auto what = wanted == SSL_WRITING ? Socket::wait_write : Socket::wait_read;
  const auto [error] = co_await socket_.async_wait(what, kAwait);
  co_return error;
}

Transport::Awaitable<Transport::error_code> Transport::open() {
  error_code error;
  socket_.non_blocking(true, error);
  while (!error && ssl_ != nullptr) {
    begin_call(error);
    if (error) break;
    error = error_of(SSL_accept(ssl_.get()));
    if (!error) break;
    broken_ = error != asio::error::would_block;
    if (broken_) break;
    error = co_await wait_for(SSL_want(ssl_.get()));
  }
  ERR_clear_error();
  co_return error;
}

bool Transport::has_pending() const { return ssl_ != nullptr && SSL_pending(ssl_.get()) > 0; }

size_t Transport::read_some(char* bytes, size_t limit, error_code& error) {
  if (ssl_ == nullptr) return socket_.read_some(asio::buffer(bytes, limit), error);
  begin_call(error);
  if (error) return 0;
  size_t count = 0;
  const int result = SSL_read_ex(ssl_.get(), bytes, limit, &count);
  error = result == 1 ? error_code() : error_of(result);
  broken_ = broken_ || (error && error != asio::error::would_block && error != asio::error::eof);
  ERR_clear_error();
  return count;
}

Transport::Awaitable<Transport::Written> Transport::write_some(std::string_view first,
                                                               std::string_view second) {
  if (ssl_ != nullptr) {
    const Written written = co_await write_secure(first.empty() ? second : first);
    co_return written;
  }
  const std::array<asio::const_buffer, 2> parts{asio::buffer(first.data(), first.size()),
                                                asio::buffer(second.data(), second.size())};
  const auto [error, count] = co_await socket_.async_write_some(parts, kAwait);
  co_return Written{error, count};
}

Transport::Awaitable<Transport::Written> Transport::write_secure(std::string_view bytes) {
  const std::string_view record = bytes.substr(0, kMaxRecordBytes);
  Written written;
  while (true) {
    begin_call(written.error);
    if (written.error) break;
    const int result = SSL_write_ex(ssl_.get(), record.data(), record.size(), &written.count);
    if (result == 1) break;
    written.error = error_of(result);
    broken_ = written.error != asio::error::would_block;
    if (broken_) break;
    written.error = co_await wait_for(SSL_want(ssl_.get()));
    if (written.error) break;
  }
  ERR_clear_error();
  co_return written;
}

void Transport::end_output() {
  if (!socket_.is_open()) return;
  if (ssl_ != nullptr && !broken_ && SSL_is_init_finished(ssl_.get()) == 1) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());  // the client's answer to it is not waited for
    ERR_clear_error();
  }
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

}  // namespace headrace
