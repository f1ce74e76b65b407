// http_message: bytes to requests and responses to bytes. Inside this folder only.
#pragma once

#include <string>
#include <string_view>

#include "server/http/http.h"

namespace headrace {

std::string fresh_request_id();
bool is_good_request_id(std::string_view id);  // fit to be sent back and logged as it is

// What of an answer's head depends on the connection.
struct AnswerFrame {
  const std::string& request_id;
  const HttpHeaders& headers;  // further ones, of every answer to this request
  bool keep_alive = false;
};
// Up to the empty line; the body is sent as it is.
std::string render_head(const HttpResponse& response, const AnswerFrame& frame);
// The head of an answer in parts; chunked: the client speaks HTTP/1.1.
std::string render_stream_head(const StreamHead& head, const AnswerFrame& frame, bool chunked);

}  // namespace headrace
