#include "cli/http_client.h"

#include <curl/curl.h>

#include <memory>
#include <mutex>

namespace headrace {
namespace {

using Curl = std::unique_ptr<CURL, void (*)(CURL*)>;
using HeaderList = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;

constexpr size_t kMaxBody = size_t{64} << 20;

Curl open_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  return {curl_easy_init(), curl_easy_cleanup};
}

struct Transfer {
  const HttpCall& call;
  HttpAnswer answer;
  CURL* curl = nullptr;
  bool stopped = false;  // by the caller
};

size_t on_body(char* data, size_t, size_t size, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
  const bool good = transfer.answer.status >= 200 && transfer.answer.status < 300;
  if (good && transfer.call.piece) {
    if (transfer.call.piece({data, size})) return size;
    transfer.stopped = true;
    return 0;
  }
  if (transfer.answer.body.size() + size > kMaxBody) return 0;
  transfer.answer.body.append(data, size);
  return size;
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const bool interrupted = transfer.call.interrupted != nullptr && *transfer.call.interrupted;
  transfer.stopped = transfer.stopped || interrupted;
  return interrupted ? 1 : 0;
}

void prepare(Transfer& transfer, const curl_slist* headers, char* reason) {
  CURL* curl = transfer.curl;
  const HttpCall& call = transfer.call;
  curl_easy_setopt(curl, CURLOPT_URL, call.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, call.connect_seconds);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  if (!call.ca.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, call.ca.c_str());
  if (call.body.empty()) return;
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call.body.data());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
}

std::string hint_for(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return "its certificate is not trusted here: name the file of the authority that signed it, "
             "or of itself where it is self-signed, with --ca FILE";
    case CURLE_SSL_CACERT_BADFILE:
      return "--ca names a file with certificates in PEM form";
    case CURLE_SSL_CONNECT_ERROR:
      return "a server without TLS is asked with http://";
    default:
      return "start one with headrace serve, or name another with --server URL";
  }
}

Error not_reached(const HttpCall& call, CURLcode code, const char* reason) {
  const bool malformed = code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL;
  Error error = make_error(malformed ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
                           "cannot reach {}: {}", call.url,
                           reason[0] != 0 ? reason : curl_easy_strerror(code));
  error.hint = hint_for(code);
  return error;
}

}  // namespace

Result<HttpAnswer> call_server(const HttpCall& call) {
  const Curl handle = open_curl();
  if (!handle) return make_error(ErrorCode::kInternal, "libcurl cannot begin");
  Transfer transfer{call, {}, handle.get()};
  char reason[CURL_ERROR_SIZE] = {};
  HeaderList headers(curl_slist_append(nullptr, "Content-Type: application/json"),
                     curl_slist_free_all);
  const std::string authorization = "Authorization: Bearer " + call.key;
  if (!call.key.empty()) curl_slist_append(headers.get(), authorization.c_str());
  prepare(transfer, headers.get(), reason);
  const CURLcode code = curl_easy_perform(handle.get());
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &transfer.answer.status);
  if (code == CURLE_OK || transfer.stopped) return std::move(transfer.answer);
  return not_reached(call, code, reason);
}

HttpCall call_of(const Options& options, const std::string& address, std::string_view path) {
  HttpCall call;
  call.url = address + std::string(path);
  call.key = options.text("--api-key");
  call.ca = options.text("--ca");
  return call;
}

std::string server_address(std::string typed) {
  if (typed.find("://") == std::string::npos) typed = "http://" + typed;
  const auto strip = [&](std::string_view ending) {
    const bool found = typed.ends_with(ending);
    if (found) typed.resize(typed.size() - ending.size());
    return found;
  };
  while (strip("/") || strip("/v1")) {
  }
  return typed;
}

}  // namespace headrace
