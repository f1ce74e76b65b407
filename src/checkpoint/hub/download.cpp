#include "checkpoint/hub/download.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "checkpoint/hub/file_kind.h"
#include "checkpoint/hub/store.h"

namespace headrace::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTextBytes = size_t{64} << 20;
constexpr size_t kMaxErrorBytes = 512;
constexpr size_t kMaxTypeBytes = 64;
constexpr long kMaxRedirects = 5;
constexpr long kConnectSeconds = 15;
constexpr int kMaxBackoffMs = 20000;
constexpr int kPauseSliceMs = 100;
constexpr int kMaxRestarts = 2;

// What the headers of the last response say; linked_* also those of the redirects before it (the
// hub names the real file there, the storage behind it does not).
struct Headers {
  long status = 0;
  std::string entity_tag, linked_tag, message, content_type;
  uint64_t content_length = 0, linked_bytes = 0;
  uint64_t range_start = 0, range_total = 0;

  bool is_success() const { return status == 200 || status == 206; }
  const std::string& identity() const { return linked_tag.empty() ? entity_tag : linked_tag; }
};

// What to do after an attempt.
enum class Outcome : uint8_t { kDone, kRetry, kRestart, kFailed };

struct Attempt {
  const DownloadRequest* request = nullptr;
  std::function<bool()> stopped;
  CURL* curl = nullptr;
  Headers headers;
  FILE* file = nullptr;  // null: the body goes to `text`
  std::string text;
  std::string saved_identity;  // of the bytes before `offset`
  uint64_t saved_total = 0;    // of the file they are the beginning of; 0: not known
  uint64_t offset = 0;         // bytes that were there before
  uint64_t written = 0;        // bytes of this attempt
  bool body_began = false;
  std::string contradiction;  // why what is on disk belongs to something else
  std::string refused;        // reason for which this side ended the transfer

  uint64_t total_bytes() const {
    if (request != nullptr && request->expected_bytes > 0) return request->expected_bytes;
    if (headers.linked_bytes > 0) return headers.linked_bytes;
    return announced_bytes() > 0 ? announced_bytes() : saved_total;
  }
  uint64_t announced_bytes() const {
    return headers.status == 206 ? headers.range_total : headers.content_length;
  }
  bool continues_saved() const {
    return !saved_identity.empty() && headers.identity() == saved_identity;
  }
};

struct Verdict {
  Outcome outcome;
  Error error;
};

std::string trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  return std::string(text);
}

std::string without_quotes(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
    tag = tag.substr(1, tag.size() - 2);
  return tag;
}

uint64_t number_in(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "bytes 100-199/200"
void read_content_range(const std::string& value, Headers& headers) {
  const size_t space = value.find(' ');
  const size_t slash = value.find('/');
  if (space == std::string::npos || slash == std::string::npos) return;
  headers.range_start = number_in(std::string_view(value).substr(space + 1));
  headers.range_total = number_in(std::string_view(value).substr(slash + 1));
}

void read_header(std::string_view line, Headers& headers) {
  if (line.starts_with("HTTP/")) {  // the first line of a response, perhaps after a redirect
    const Headers before = std::exchange(headers, Headers{});
    headers.linked_tag = before.linked_tag;
    headers.linked_bytes = before.linked_bytes;
    if (const size_t space = line.find(' '); space != std::string_view::npos) {
      headers.status = static_cast<long>(number_in(line.substr(space + 1)));
    }
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::string value = trimmed(line.substr(colon + 1));
  if (name == "content-type") headers.content_type = value.substr(0, kMaxTypeBytes);
  if (name == "etag") headers.entity_tag = without_quotes(value);
  if (name == "x-linked-etag") headers.linked_tag = without_quotes(value);
  if (name == "x-linked-size") headers.linked_bytes = number_in(value);
  if (name == "content-length") headers.content_length = number_in(value);
  if (name == "content-range") read_content_range(value, headers);
  if (name == "x-error-message") headers.message = value.substr(0, kMaxErrorBytes);
}

size_t on_header(char* data, size_t size, size_t count, void* user) {
  read_header({data, size * count}, static_cast<Attempt*>(user)->headers);
  return size * count;
}

// Why the answer to a range does not go on with what is on disk; empty: it does.
std::string contradiction_of(const Attempt& attempt) {
  const Headers& headers = attempt.headers;
  if (attempt.saved_identity.empty()) return "nothing tells whether it is the same file";
  if (!attempt.continues_saved()) return "it is another file now";
  if (headers.range_start != attempt.offset) {
    return fmt::format("the answer begins at byte {}, asked for was {}", headers.range_start,
                       attempt.offset);
  }
  if (attempt.saved_total == 0 || headers.range_total == 0) return {};
  if (headers.range_total == attempt.saved_total) return {};
  return fmt::format("it has {} bytes now, {} were announced before", headers.range_total,
                     attempt.saved_total);
}

// Before the first byte of a file is written, or where none came: does it continue what is on disk?
bool begin_body(Attempt& attempt) {
  const DownloadRequest& request = *attempt.request;
  const Headers& headers = attempt.headers;
  if (attempt.offset > 0 && headers.status == 206) {
    attempt.contradiction = contradiction_of(attempt);
    if (!attempt.contradiction.empty()) return false;
  } else if (attempt.offset > 0) {  // the server ignored the range and sends all
    if (ftruncate(fileno(attempt.file), 0) != 0) {
      attempt.refused = fmt::format("cannot cut '{}.part': {}", request.path, std::strerror(errno));
      return false;
    }
    rewind(attempt.file);
    attempt.offset = 0;
  }
  if (!attempt.continues_saved()) attempt.saved_total = 0;
  const uint64_t announced = attempt.announced_bytes();
  const uint64_t wanted =
      request.expected_bytes > 0 ? request.expected_bytes : headers.linked_bytes;
  if (wanted > 0 && announced > 0 && announced != wanted) {
    attempt.refused =
        fmt::format("the server announces {} bytes, the model's list says {}", announced, wanted);
    return false;
  }
  std::ofstream(request.path + ".part.id", std::ios::trunc) << headers.identity() << '\n'
                                                            << attempt.total_bytes() << '\n';
  return true;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& attempt = *static_cast<Attempt*>(user);
  const size_t num_bytes = size * count;
  const bool success = attempt.headers.is_success();
  if (attempt.file == nullptr || !success) {
    const size_t limit = success ? kMaxTextBytes : kMaxErrorBytes;
    if (success && attempt.text.size() + num_bytes > limit) {
      attempt.refused = "the answer is larger than 64 MiB";
      return 0;
    }
    attempt.text.append(data, std::min(num_bytes, limit - std::min(limit, attempt.text.size())));
    return num_bytes;
  }
  if (!std::exchange(attempt.body_began, true) && !begin_body(attempt)) return 0;
  if (fwrite(data, 1, num_bytes, attempt.file) != num_bytes) {
    attempt.refused =
        fmt::format("cannot write '{}.part': {}", attempt.request->path, std::strerror(errno));
    return 0;
  }
  attempt.written += num_bytes;
  if (attempt.request->progress) {
    attempt.request->progress(attempt.offset + attempt.written, attempt.total_bytes());
  }
  return num_bytes;
}

bool is_stopped(const std::function<bool()>& stopped) { return stopped && stopped(); }

// libcurl calls it about once a second, also where no bytes come. Not 0: the transfer ends.
int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return is_stopped(static_cast<Attempt*>(user)->stopped) ? 1 : 0;
}

Error stopped_error(const std::string& url) {
  Error error = make_error(ErrorCode::kUnavailable, "the pull of {} was stopped", shown_url(url));
  error.hint = "the next pull goes on where this one ended";
  return error;
}

// Answers that are final, each with what the user can do.
struct StatusRow {
  long status;
  ErrorCode code;
  std::string_view hint;
};

constexpr StatusRow kStatusRows[] = {
    {400, ErrorCode::kInvalidArgument, "check the name"},
    {401, ErrorCode::kPermission,
     "the repository is private, gated or misspelt: check the name, or set HF_TOKEN to a token "
     "that may read it"},
    {403, ErrorCode::kPermission,
     "accept the model's terms on its page and set HF_TOKEN to a token that may read it"},
    {404, ErrorCode::kNotFound, "check organisation, repository, revision and file name"},
};

Verdict judge_status(const Attempt& attempt, const std::string& url) {
  const long status = attempt.headers.status;
  Error error = make_error(ErrorCode::kIo, "{} answered with status {}", shown_url(url), status);
  if (!attempt.headers.message.empty()) error.message += ": " + attempt.headers.message;
  if (status == 416) return {Outcome::kRestart, error};
  if (status == 408 || status == 429 || status >= 500) return {Outcome::kRetry, error};
  for (const StatusRow& row : kStatusRows) {
    if (row.status != status) continue;
    error.code = row.code;
    error.hint = row.hint;
  }
  return {Outcome::kFailed, error};
}

Verdict judge(const Attempt& attempt, const std::string& url, CURLcode code, const char* reason) {
  if (!attempt.contradiction.empty()) {
    return {Outcome::kRestart, make_error(ErrorCode::kIo, "{} changed while it was read: {}",
                                          shown_url(url), attempt.contradiction)};
  }
  if (!attempt.refused.empty()) {
    return {Outcome::kFailed,
            make_error(ErrorCode::kCorrupt, "{}: {}", shown_url(url), attempt.refused)};
  }
  if (code == CURLE_ABORTED_BY_CALLBACK) return {Outcome::kFailed, stopped_error(url)};
  const long status = attempt.headers.status;
  const bool final_answer = code == CURLE_OK || status >= 400;
  if (final_answer && !attempt.headers.is_success()) return judge_status(attempt, url);
  if (code == CURLE_OK) return {Outcome::kDone, {}};
  Error error = make_error(ErrorCode::kIo, "{}: {}", shown_url(url),
                           reason[0] != 0 ? reason : curl_easy_strerror(code));
  error.hint = "check the network; the same command goes on where this one stopped";
  const bool permanent = code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
                         code == CURLE_TOO_MANY_REDIRECTS || code == CURLE_PEER_FAILED_VERIFICATION;
  return {permanent ? Outcome::kFailed : Outcome::kRetry, error};
}

using Curl = std::unique_ptr<CURL, void (*)(CURL*)>;
using HeaderList = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;

Curl new_handle() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  return {curl_easy_init(), curl_easy_cleanup};
}

// One request, redirects included. libcurl drops the Authorization header when a redirect leaves
// host, port or scheme.
Verdict transfer(Attempt& attempt, const std::string& url, const std::string& token,
                 const RetryPolicy& retry) {
  const Curl handle = new_handle();
  CHECK(handle != nullptr);
  CURL* curl = handle.get();
  attempt.curl = curl;
  char reason[CURL_ERROR_SIZE] = "";
  const std::string authorization = "Authorization: Bearer " + token;
  const HeaderList list(token.empty() ? nullptr : curl_slist_append(nullptr, authorization.c_str()),
                        curl_slist_free_all);
  const char* protocols = url.starts_with("https:") ? "https" : "http,https";
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kMaxRedirects);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(retry.stall_seconds));
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "headrace");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list.get());
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &attempt);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &attempt);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &attempt);
  const std::string range = fmt::format("{}-", attempt.offset);
  if (attempt.offset > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  const CURLcode code = curl_easy_perform(curl);
  const bool is_empty = code == CURLE_OK && attempt.headers.is_success() && !attempt.body_began;
  if (attempt.file != nullptr && is_empty) begin_body(attempt);
  return judge(attempt, url, code, reason);
}

// In short sleeps: a pull that is stopped ends soon.
void pause_before_attempt(int num_failures, const RetryPolicy& retry,
                          const std::function<bool()>& stopped) {
  const int64_t pause_ms = int64_t{retry.backoff_ms} << std::min(num_failures - 1, 10);
  int64_t left_ms = std::min<int64_t>(pause_ms, kMaxBackoffMs);
  while (left_ms > 0 && !is_stopped(stopped)) {
    const int64_t slice_ms = std::min<int64_t>(left_ms, kPauseSliceMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(slice_ms));
    left_ms -= slice_ms;
  }
}

void discard_part(const std::string& path) {
  std::error_code ignored;
  fs::remove(path + ".part", ignored);
  fs::remove(path + ".part.id", ignored);
}

void read_identity(Attempt& attempt) {
  std::ifstream file(attempt.request->path + ".part.id");
  std::getline(file, attempt.saved_identity);
  file >> attempt.saved_total;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Verdict check_kind(const DownloadRequest& request, const Attempt& attempt) {
  const std::string name = fs::path(request.path).filename().string();
  Status kind = check_file_kind(request.path + ".part", name, attempt.headers.content_type);
  if (kind.ok()) return {Outcome::kDone, {}};
  discard_part(request.path);  // to go on with it would give the same
  Error error = std::move(kind).error();
  error.message = fmt::format("{}: {}", shown_url(request.url), error.message);
  return {Outcome::kFailed, error};
}

// Length, digest and form of PATH.part after a transfer that ended well.
Verdict check_part(const DownloadRequest& request, const Attempt& attempt) {
  const uint64_t total = attempt.total_bytes();
  const uint64_t found = file_size_or_zero(request.path + ".part");
  if (total > 0 && found != total) {
    Error error = make_error(ErrorCode::kCorrupt, "{}: {} bytes arrived, {} were announced",
                             shown_url(request.url), found, total);
    if (found > total) return {Outcome::kRestart, error};
    error.hint = "the connection ended early; the same command goes on where this one stopped";
    return {Outcome::kRetry, error};
  }
  const std::string& identity = attempt.headers.identity();
  const std::string wanted = !request.sha256.empty() ? request.sha256
                             : is_sha256(identity)   ? identity
                                                     : std::string();
  if (wanted.empty()) return check_kind(request, attempt);
  const auto digest = sha256_of_file(request.path + ".part");
  if (!digest.ok()) return {Outcome::kFailed, digest.error()};
  if (*digest == wanted) return check_kind(request, attempt);
  Error error = make_error(ErrorCode::kCorrupt, "{}: the file's SHA-256 is {}, {} was announced",
                           shown_url(request.url), *digest, wanted);
  error.hint = "the file was thrown away; try again, or tell the owner of the repository";
  return {Outcome::kRestart, error};
}

// One attempt at a file: continues PATH.part if it is there.
Verdict attempt_file(const DownloadRequest& request) {
  const std::string part = request.path + ".part";
  Attempt attempt;
  attempt.request = &request;
  attempt.stopped = request.stopped;
  attempt.offset = file_size_or_zero(part);
  read_identity(attempt);
  if (attempt.offset > 0 && attempt.offset == request.expected_bytes) {
    return check_part(request, attempt);  // all bytes came, the end of the work did not
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(part.c_str(), "abe"), fclose);
  if (!file) {
    return {Outcome::kFailed,
            make_error(ErrorCode::kIo, "cannot write '{}': {}", part, std::strerror(errno))};
  }
  attempt.file = file.get();
  Verdict verdict = transfer(attempt, request.url, request.token, request.retry);
  if (fflush(file.get()) != 0) {
    return {Outcome::kFailed,
            make_error(ErrorCode::kIo, "cannot write '{}': {}", part, std::strerror(errno))};
  }
  if (verdict.outcome != Outcome::kDone) return verdict;
  return check_part(request, attempt);
}

// PATH.part has the whole file when it ends well.
Status fetch_part(const DownloadRequest& request) {
  int num_failures = 0;
  int num_restarts = 0;
  uint64_t most_bytes = 0;  // an attempt that gets further than all before it counts as progress
  while (true) {
    const Verdict verdict = attempt_file(request);
    if (verdict.outcome == Outcome::kDone) return {};
    if (verdict.outcome == Outcome::kRestart) {
      discard_part(request.path);
      if (++num_restarts > kMaxRestarts) return verdict.error;
      continue;
    }
    if (verdict.outcome == Outcome::kFailed) return verdict.error;
    const uint64_t num_bytes = file_size_or_zero(request.path + ".part");
    num_failures = num_bytes > most_bytes ? 1 : num_failures + 1;
    most_bytes = std::max(most_bytes, num_bytes);
    if (num_failures >= request.retry.max_attempts) return verdict.error;
    LOG(kDebug, "{}; trying again", verdict.error.message);
    pause_before_attempt(num_failures, request.retry, request.stopped);
    if (is_stopped(request.stopped)) return stopped_error(request.url);
  }
}

}  // namespace

std::string shown_url(const std::string& url) {
  std::string shown = url.substr(0, url.find_first_of("?#"));
  const size_t host = shown.find("://");
  const size_t at = host == std::string::npos ? host : shown.find('@', host);
  if (at != std::string::npos && at < shown.find('/', host + 3))
    shown.erase(host + 3, at - host - 2);
  return shown;
}

Status download(const DownloadRequest& request) {
  Status status = fetch_part(request);
  if (!status.ok()) {
    // Of nothing nothing can be gone on with.
    if (file_size_or_zero(request.path + ".part") == 0) discard_part(request.path);
    return status;
  }
  TRY(move_into_place(request.path + ".part", request.path));
  discard_part(request.path);
  return {};
}

Result<std::string> fetch_text(const std::string& url, const std::string& token,
                               const RetryPolicy& retry, const std::function<bool()>& stopped) {
  for (int num_failures = 1;; ++num_failures) {
    Attempt attempt;
    attempt.stopped = stopped;
    const Verdict verdict = transfer(attempt, url, token, retry);
    if (verdict.outcome == Outcome::kDone) return std::move(attempt.text);
    if (verdict.outcome != Outcome::kRetry || num_failures >= retry.max_attempts) {
      return verdict.error;
    }
    pause_before_attempt(num_failures, retry, stopped);
    if (is_stopped(stopped)) return stopped_error(url);
  }
}

}  // namespace headrace::hub
