// tls: a certificate and its key as connections use them. OpenSSL stays inside this folder.
//
// TLS 1.2 and 1.3, no renegotiation, no compression, http/1.1 by ALPN. A context is constant once
// loaded: files that changed become a new context for new connections, those that exist keep
// theirs.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

struct ssl_ctx_st;

namespace headrace {

struct TlsFiles {
  std::string certificate;  // PEM: the server's, then the authorities between it and the root
  std::string key;          // PEM, without a passphrase

  bool given() const { return !certificate.empty(); }
};

using TlsContext = std::shared_ptr<ssl_ctx_st>;  // null: no TLS

// kIo: a file cannot be read or parsed, or the key is not the certificate's.
Result<TlsContext> load_tls(const TlsFiles& files);

}  // namespace headrace
