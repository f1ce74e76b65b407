#include "server/lab/engine_watch.h"

#include <curl/curl.h>

#include <boost/json.hpp>

#include "base/json.h"
#include "base/quote.h"
#include "server/api/json_writer.h"
#include "server/api/wall_clock.h"

namespace headrace::lab {
namespace {

using boost::json::object;

constexpr TimeUs kWatchInterval = 1'000'000;
constexpr TimeUs kWatchInterest = 10'000'000;  // after the last question
constexpr long kWatchPatienceMs = 2'000;       // with an answer
constexpr size_t kMaxStatusBytes = size_t{1} << 20;

size_t take_status(char* data, size_t, size_t size, void* context) {
  std::string& body = *static_cast<std::string*>(context);
  if (body.size() + size > kMaxStatusBytes) return 0;
  body.append(data, size);
  return size;
}

object seen_of(const std::string& url, std::string_view state, std::string_view error,
               boost::json::value status = nullptr) {
  return {{"name", url},
          {"url", url},
          {"state", state},
          {"error", valid_utf8(error)},
          {"at_ms", wall_clock_us() / 1000},
          {"status", std::move(status)}};
}

object ask_engine(const std::string& url) {
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (curl == nullptr) return seen_of(url, "unreachable", "libcurl cannot begin");
  const std::string address = url + "/api/headrace/status";
  std::string body;
  curl_easy_setopt(curl.get(), CURLOPT_URL, address.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, kWatchPatienceMs);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, take_status);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) return seen_of(url, "unreachable", curl_easy_strerror(code));
  long http_status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &http_status);
  if (http_status != 200) return seen_of(url, "refused", fmt::format("status {}", http_status));
  auto status = parse_json(body, "its status");
  if (!status.ok()) return seen_of(url, "refused", status.error().message);
  return seen_of(url, "ok", "", std::move(*status));
}

bool is_address(std::string_view url) {
  return (url.starts_with("http://") || url.starts_with("https://")) && !url.ends_with("/");
}

}  // namespace

Result<std::unique_ptr<EngineWatch>> EngineWatch::create(const std::vector<std::string>& urls) {
  if (urls.size() > kMaxWatchedEngines) {
    return make_error(ErrorCode::kInvalidArgument, "{} engines are to be watched, and may be {}",
                      urls.size(), kMaxWatchedEngines);
  }
  for (const std::string& url : urls) {
    if (is_address(url)) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "{} is no address of an engine: it must look like http://host:port",
                      quote(url));
  }
  return std::unique_ptr<EngineWatch>(new EngineWatch(urls));
}

EngineWatch::EngineWatch(const std::vector<std::string>& urls) {
  for (const std::string& url : urls) {
    engines_.push_back(std::make_unique<Engine>(Engine{url, seen_of(url, "unknown", ""), {}}));
  }
  for (const auto& engine : engines_) {
    engine->thread = std::thread([this, &engine] { run(*engine); });
  }
}

EngineWatch::~EngineWatch() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  for (const auto& engine : engines_) engine->thread.join();
}

std::vector<object> EngineWatch::look() {
  std::vector<object> seen;
  {
    std::lock_guard lock(mutex_);
    wanted_us_ = now_us();
    for (const auto& engine : engines_) seen.push_back(engine->seen);
  }
  changed_.notify_all();
  return seen;
}

void EngineWatch::run(Engine& engine) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      return closed_ || (wanted_us_ != 0 && now_us() - wanted_us_ < kWatchInterest);
    });
    if (closed_) return;
    lock.unlock();
    object seen = ask_engine(engine.url);
    lock.lock();
    engine.seen = std::move(seen);
    changed_.wait_for(lock, std::chrono::microseconds(kWatchInterval), [this] { return closed_; });
  }
}

}  // namespace headrace::lab
