// RequestParser: bytes as they arrive to one request. No sockets, no threads, no clock.
//
// Strict: what proxies and servers could read in two ways is refused, and the connection with it.
// Every byte counts against a limit: the head and the trailers together against max_head_bytes, the
// body against max_body_bytes, and what frames chunks against kFramingBytes and a quarter of the
// body. The body's memory is leased before it is taken. Sources: RFC 9112, RFC 9110.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http/http.h"

namespace headrace {

inline constexpr size_t kSmallBodyBytes = 64 * 1024;  // a body up to here never waits for a larger
inline constexpr size_t kFramingBytes = 256 * 1024;   // of chunks, plus a quarter of the body
inline constexpr size_t kChunkLineBytes = 256;        // size and extensions of one chunk

// Why no more of the request is read. The connection cannot be used after it.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

class RequestParser {
 public:
  // options outlive the parser, as do the budgets. memory: of all bodies; uploads: of those that
  // are larger than kSmallBodyBytes and were not taken up yet. Null: not counted.
  explicit RequestParser(const HttpOptions& options, ByteBudget* memory = nullptr,
                         ByteBudget* uploads = nullptr);

  // Uses bytes, at most to the end of the head, then at most to the end of the request. Returns how
  // many; what is left belongs to the next call or the next request.
  size_t put(std::string_view bytes);

  bool head_done() const { return state_ > State::kFields; }
  bool done() const { return state_ == State::kDone; }
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }

  // Once the head is done:
  HttpRequest& request() { return request_; }  // its body and memory once all is done
  bool keep_alive() const { return keep_alive_; }
  bool is_http11() const { return is_http11_; }
  bool expects_continue() const { return expects_continue_; }
  size_t body_bytes() const { return request_.body.size(); }  // so far
  // At the end of the head: how long the body will be; SIZE_MAX: not said.
  size_t announced_bytes() const { return is_chunked_ ? SIZE_MAX : left_bytes_; }
  ByteBudget::Lease take_upload() { return std::move(upload_); }

 private:
  enum class State : uint8_t {
    kRequestLine,
    kFields,
    kBody,  // Content-Length
    kChunkLine,
    kChunk,
    kChunkEnd,
    kTrailers,
    kDone,
  };

  void refuse(int status, std::string message);
  bool count_line(size_t more);
  bool take_line(std::string_view& bytes);
  void on_line();
  void read_request_line();
  bool read_field(HttpHeaders* fields);
  void finish_head();
  bool check_host();
  bool check_framing();
  void read_chunk_line();
  void take_body(std::string_view& bytes);
  bool make_room(size_t more);

  const HttpOptions& options_;
  State state_ = State::kRequestLine;
  std::optional<HttpRefusal> refusal_;
  HttpRequest request_;
  std::string authority_;  // of an absolute target: replaces the Host header
  std::string line_;       // that is being read
  size_t head_bytes_ = 0;  // with the trailers'
  size_t num_fields_ = 0;  // with the trailers'
  size_t framing_bytes_ = 0;
  size_t left_bytes_ = 0;  // of the body, or of this chunk
  ByteBudget::Lease upload_;
  ByteBudget* const uploads_;
  bool is_chunked_ = false;
  bool is_http11_ = true;
  bool keep_alive_ = true;
  bool expects_continue_ = false;
  bool skipped_line_ = false;  // an empty one before the request
};

// One whole request from memory, under the same limits and checks as on a connection.
// kInvalidArgument: malformed; kExhausted: over a limit.
Result<HttpRequest> parse_request(std::string_view bytes, const HttpOptions& options);

}  // namespace headrace
