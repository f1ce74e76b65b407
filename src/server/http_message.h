// http_message: bytes to requests and responses to bytes. Inside http*.cpp only.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>
#include <string_view>

#include "server/http.h"

namespace headrace {

using HttpParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

void configure(HttpParser& parser, const HttpOptions& options);
// Checks on top of the parser's, before any byte of the body is read.
Status check_head(const HttpParser& parser, const HttpOptions& options);
int status_of_head_error(const Error& error);
// What the parser or the network said, as a status; 0: close without an answer.
int status_of_read_error(const boost::beast::error_code& error);
HttpResponse response_to_read_error(int status, const boost::beast::error_code& error,
                                    const HttpOptions& options);
Result<HttpRequest> to_request(HttpParser&& parser);

std::string fresh_request_id();
std::string render_response(const HttpResponse& response, const std::string& request_id,
                            bool keep_alive, bool head_only);
// The head of an event stream; chunked: the client speaks HTTP/1.1.
std::string render_stream_head(const HttpHeaders& headers, const std::string& request_id,
                               bool keep_alive, bool chunked);

}  // namespace headrace
