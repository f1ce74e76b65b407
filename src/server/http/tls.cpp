#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string_view>

namespace headrace {
namespace {

constexpr std::string_view kProtocols = "\x08http/1.1";  // as ALPN writes a list of one

std::string last_reason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "unknown reason" : reason;
}

Error cannot_use(std::string_view what, const std::string& path) {
  return make_error(ErrorCode::kIo, "cannot use the TLS {} in '{}': {}", what, path, last_reason());
}

int choose_protocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* in, unsigned int in_size, void* /*argument*/) {
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(
      &chosen, out_size, reinterpret_cast<const unsigned char*>(kProtocols.data()),
      static_cast<unsigned int>(kProtocols.size()), in, in_size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

Result<TlsContext> load_tls(const TlsFiles& files) {
  ERR_clear_error();
  const TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) {
    return make_error(ErrorCode::kInternal, "no TLS context: {}", last_reason());
  }
  SSL_CTX* raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(
      raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);  // many connections are idle
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  // A key with a passphrase is an error, not a question at a terminal.
  SSL_CTX_set_default_passwd_cb(raw, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_certificate_chain_file(raw, files.certificate.c_str()) != 1) {
    return cannot_use("certificate", files.certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(raw, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return cannot_use("key", files.key);
  }
  return context;
}

}  // namespace headrace
