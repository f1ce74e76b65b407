#include "server/http/parser.h"

#include <algorithm>
#include <charconv>

#include "server/http/message.h"
#include "server/http/syntax.h"

namespace headrace {
namespace {

constexpr size_t kMethodAndVersionBytes = 64;  // of a request line, beside its target
constexpr std::string_view kInvalid = "this is not a valid HTTP/1.1 request: ";

std::string invalid(std::string_view why) { return std::string(kInvalid) + std::string(why); }

// The lines of a field that may stand once; more than one is an attempt to be read in two ways.
size_t count_fields(const HttpHeaders& headers, std::string_view name) {
  return static_cast<size_t>(std::count_if(headers.begin(), headers.end(),
                                           [&](const auto& field) { return field.first == name; }));
}

// Digits alone; nothing if they do not fit.
std::optional<uint64_t> parse_digits(std::string_view text, int base) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// From `checked` on: control characters, and carriage returns that end no line.
bool is_clean(std::string_view line, size_t checked) {
  for (size_t i = checked; i < line.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(line[i]);
    const bool ends = c == '\r' && (i + 1 == line.size() || line[i + 1] == '\n');
    if ((c < 0x20 && c != '\t' && c != '\n' && !ends) || c == 0x7F) return false;
  }
  return true;
}

}  // namespace

RequestParser::RequestParser(const HttpOptions& options, ByteBudget* memory, ByteBudget* uploads)
    : options_(options), uploads_(uploads) {
  if (memory != nullptr) request_.memory = memory->lease();
}

size_t RequestParser::put(std::string_view bytes) {
  const size_t given = bytes.size();
  const bool had_head = head_done();
  while (!bytes.empty() && !refusal_ && !done() && head_done() == had_head) {
    if (state_ == State::kBody || state_ == State::kChunk) {
      take_body(bytes);
    } else if (take_line(bytes)) {
      on_line();
      line_.clear();
    }
  }
  return given - bytes.size();
}

void RequestParser::refuse(int status, std::string message) {
  refusal_ = HttpRefusal{status, std::move(message)};
}

// The bytes that line_ grew by, against the limits of its kind.
bool RequestParser::count_line(size_t more) {
  if (state_ == State::kChunkLine || state_ == State::kChunkEnd) {
    framing_bytes_ += more;
    if (line_.size() > kChunkLineBytes) {
      refuse(413, fmt::format("the line before a chunk is longer than {} bytes", kChunkLineBytes));
    } else if (framing_bytes_ > kFramingBytes + request_.body.size() / 4) {
      refuse(413, fmt::format("the chunks are too small: what frames them is longer than {} bytes "
                              "and a quarter of the body",
                              kFramingBytes));
    }
    return !refusal_;
  }
  head_bytes_ += more;
  const bool is_first = state_ == State::kRequestLine;
  if (is_first && line_.size() > options_.max_target_bytes + kMethodAndVersionBytes) {
    line_.find(' ') < kMethodAndVersionBytes
        ? refuse(414, fmt::format("the request target is longer than {} bytes",
                                  options_.max_target_bytes))
        : refuse(400, invalid("it begins with no method"));
  } else if (head_bytes_ > options_.max_head_bytes) {
    refuse(431, fmt::format("the request line and headers are longer than {} bytes",
                            options_.max_head_bytes));
  }
  return !refusal_;
}

// True: line_ is a whole line, without its end.
bool RequestParser::take_line(std::string_view& bytes) {
  const size_t end = bytes.find('\n');
  const size_t length = end == std::string_view::npos ? bytes.size() : end + 1;
  const size_t checked = line_.empty() ? 0 : line_.size() - 1;
  line_ += bytes.substr(0, length);
  bytes.remove_prefix(length);
  if (!is_clean(line_, checked)) refuse(400, invalid("it holds a control character"));
  if (refusal_ || !count_line(length) || end == std::string_view::npos) return false;
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') {
    refuse(400, invalid("a line ends without a carriage return"));
    return false;
  }
  line_.resize(line_.size() - 2);
  return true;
}

void RequestParser::on_line() {
  switch (state_) {
    case State::kRequestLine:
      if (!line_.empty() || std::exchange(skipped_line_, true)) read_request_line();
      return;
    case State::kFields:
      line_.empty() ? finish_head() : (void)read_field(&request_.headers);
      return;
    case State::kChunkLine:
      read_chunk_line();
      return;
    case State::kChunkEnd:
      state_ = State::kChunkLine;
      if (!line_.empty()) refuse(400, invalid("a chunk is longer than it says"));
      return;
    case State::kTrailers:
      if (line_.empty()) {
        state_ = State::kDone;
      } else {
        read_field(nullptr);
      }
      return;
    default:
      CHECK(false, "state {} has no lines", static_cast<int>(state_));
  }
}

void RequestParser::read_request_line() {
  const std::string_view line = line_;
  const size_t first = std::min(line.find(' '), line.size());
  const size_t second = std::min(line.find(' ', first + 1), line.size());
  const std::string_view method = line.substr(0, first);
  const std::string_view target =
      second > first ? line.substr(first + 1, second - first - 1) : std::string_view();
  const std::string_view version = line.substr(std::min(second + 1, line.size()));
  if (!is_http_token(method)) return refuse(400, invalid("it begins with no method"));
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool is_http = version.starts_with("HTTP/") && version.size() == 8;
    return refuse(is_http ? 505 : 400,
                  is_http ? "the server speaks HTTP/1.1 and HTTP/1.0 alone"
                          : invalid("the request line must be METHOD TARGET HTTP/1.1"));
  }
  if (target.size() > options_.max_target_bytes) {
    return refuse(
        414, fmt::format("the request target is longer than {} bytes", options_.max_target_bytes));
  }
  auto parsed = parse_target(target);
  if (!parsed) {
    return refuse(400, "the request target must begin with '/' or http://, with whole %xx escapes");
  }
  request_.method = method;
  request_.path = std::move(parsed->path);
  request_.query = std::move(parsed->query);
  authority_ = std::move(parsed->authority);
  is_http11_ = version == "HTTP/1.1";
  state_ = State::kFields;
}

// Into fields, or checked and dropped where that is null.
bool RequestParser::read_field(HttpHeaders* fields) {
  const std::string_view line = line_;
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_http_token(line.substr(0, colon))) {
    refuse(400, invalid("a header must be NAME: VALUE, on one line"));
  } else if (++num_fields_ > static_cast<size_t>(options_.max_headers)) {
    refuse(431, fmt::format("more than {} headers", options_.max_headers));
  } else if (fields != nullptr) {
    fields->emplace_back(to_lower(line.substr(0, colon)),
                         std::string(trim_spaces(line.substr(colon + 1))));
  }
  return !refusal_;
}

bool RequestParser::check_host() {
  const size_t num_hosts = count_fields(request_.headers, "host");
  if (num_hosts > 1 || (is_http11_ && num_hosts == 0)) {
    refuse(400, "exactly one Host header is needed");
  } else if (num_hosts == 1 && !parse_host(request_.header("host"))) {
    refuse(400, "the Host header must be HOST or HOST:PORT");
  } else if (!authority_.empty()) {
    std::erase_if(request_.headers, [](const auto& field) { return field.first == "host"; });
    request_.headers.emplace_back("host", authority_);
  }
  return !refusal_;
}

// How the body ends. Anything but one plain length or one plain `chunked` is refused.
bool RequestParser::check_framing() {
  const size_t num_lengths = count_fields(request_.headers, "content-length");
  const size_t num_codings = count_fields(request_.headers, "transfer-encoding");
  const std::string_view coding = request_.header("transfer-encoding");
  const std::string_view length_text = request_.header("content-length");
  const auto length = parse_digits(length_text, 10);
  if (num_lengths > 1 || (num_lengths == 1 && num_codings > 0)) {
    refuse(400, "a request has one Content-Length or one Transfer-Encoding, not more");
  } else if (num_codings > 0 && !is_http11_) {
    refuse(400, "HTTP/1.0 has no Transfer-Encoding");
  } else if (num_codings > 1 || (num_codings == 1 && !equals_ignoring_case(coding, "chunked"))) {
    const bool ends_chunked = num_codings == 1 && to_lower(coding).ends_with(", chunked") &&
                              !list_holds(coding.substr(0, coding.rfind(',')), "chunked");
    refuse(ends_chunked ? 501 : 400, "the only Transfer-Encoding taken is one plain 'chunked'");
  } else if (num_lengths == 1 && !length) {
    const bool is_number = !length_text.empty() &&
                           length_text.find_first_not_of("0123456789") == std::string_view::npos;
    refuse(is_number ? 413 : 400, "the Content-Length must be a plain number of bytes");
  } else if (length.value_or(0) > options_.max_body_bytes) {
    refuse(413, fmt::format("the body is longer than {} bytes", options_.max_body_bytes));
  }
  is_chunked_ = num_codings == 1;
  left_bytes_ = length.value_or(0);
  return !refusal_;
}

void RequestParser::finish_head() {
  if (!check_host() || !check_framing()) return;
  const std::string_view encoding = request_.header("content-encoding");
  if (!encoding.empty() && !equals_ignoring_case(encoding, "identity")) {
    return refuse(415, "the body must not be compressed: there is a Content-Encoding header");
  }
  const std::string_view expectation = request_.header("expect");
  expects_continue_ = is_http11_ && equals_ignoring_case(expectation, "100-continue");
  if (!expectation.empty() && is_http11_ && !expects_continue_) {
    return refuse(417, "the only expectation that is met is 100-continue");
  }
  const std::string_view connection = request_.header("connection");
  keep_alive_ =
      !list_holds(connection, "close") && (is_http11_ || list_holds(connection, "keep-alive"));
  const std::string_view id = request_.header("x-request-id");
  request_.request_id = is_good_request_id(id) ? std::string(id) : fresh_request_id();
  if (is_chunked_) {
    state_ = State::kChunkLine;
  } else {
    state_ = left_bytes_ > 0 ? State::kBody : State::kDone;
  }
}

void RequestParser::read_chunk_line() {
  const size_t end = std::min(line_.find_first_of("; \t"), line_.size());
  const std::string_view rest = trim_spaces(std::string_view(line_).substr(end));
  const auto size = parse_digits(std::string_view(line_).substr(0, end), 16);
  if (!size || end > 16 || (!rest.empty() && !rest.starts_with(';'))) {
    return refuse(400, invalid("a chunk must begin with its size, at most 16 hex digits"));
  }
  left_bytes_ = *size;
  if (left_bytes_ > options_.max_body_bytes - request_.body.size()) {
    return refuse(413, fmt::format("the body is longer than {} bytes", options_.max_body_bytes));
  }
  state_ = left_bytes_ == 0 ? State::kTrailers : State::kChunk;
}

void RequestParser::take_body(std::string_view& bytes) {
  const size_t count = std::min(bytes.size(), left_bytes_);
  if (!make_room(count)) return;
  request_.body += bytes.substr(0, count);
  bytes.remove_prefix(count);
  left_bytes_ -= count;
  if (left_bytes_ > 0) return;
  state_ = is_chunked_ ? State::kChunkEnd : State::kDone;
}

// Leases what the body's buffer will take, before it takes it: no more than twice what has arrived.
bool RequestParser::make_room(size_t more) {
  const size_t needed = request_.body.size() + more;
  if (needed <= request_.body.capacity()) return true;
  const size_t whole = is_chunked_ ? options_.max_body_bytes : request_.body.size() + left_bytes_;
  for (const size_t capacity : {std::min(2 * needed, whole), needed}) {
    const bool is_large = capacity > kSmallBodyBytes;
    if (is_large && uploads_ != nullptr) {
      if (upload_.bytes() == 0) upload_ = uploads_->lease();
      if (!upload_.resize(capacity)) continue;
    }
    if (!request_.memory.resize(capacity)) continue;
    std::string larger;  // reserve() on the body itself may take more than it is asked for
    larger.reserve(capacity);
    larger += request_.body;
    request_.body.swap(larger);
    return true;
  }
  refuse(503, "the server's memory for requests is in use; try again in a moment");
  return false;
}

Result<HttpRequest> parse_request(std::string_view bytes, const HttpOptions& options) {
  RequestParser parser(options);
  while (!bytes.empty() && !parser.done() && !parser.refusal()) {
    bytes.remove_prefix(parser.put(bytes));
  }
  if (const auto& refusal = parser.refusal()) {
    const bool is_limit =
        refusal->status == 413 || refusal->status == 414 || refusal->status == 431;
    return Error{
        is_limit ? ErrorCode::kExhausted : ErrorCode::kInvalidArgument, refusal->message, {}, {}};
  }
  if (!parser.done()) {
    return make_error(ErrorCode::kInvalidArgument, "the request is incomplete");
  }
  return std::move(parser.request());
}

}  // namespace headrace
