#include "bench/serve/curl_transport.h"

#include <curl/curl.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

namespace headrace::loads {
namespace {

struct Exchange {
  size_t id = 0;
  CURL* curl = nullptr;
  std::string body;
  AnswerReader reader;
  char reason[CURL_ERROR_SIZE] = {};
};

size_t on_bytes(char* data, size_t, size_t size, void* context) {
  static_cast<Exchange*>(context)->reader.feed({data, size}, now_us());
  return size;
}

class CurlTransport final : public Transport {
 public:
  CurlTransport(const Target& target, CURLM* multi) : target_(target), multi_(multi) {
    headers_ = curl_slist_append(nullptr, "Content-Type: application/json");
    headers_ = curl_slist_append(headers_, "Expect:");  // no round trip before a long prompt
    const std::string authorization = "Authorization: Bearer " + target.key;
    if (!target.key.empty()) headers_ = curl_slist_append(headers_, authorization.c_str());
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(target.connections));
  }
  ~CurlTransport() override {
    drop_all();
    for (CURL* curl : idle_) curl_easy_cleanup(curl);
    curl_multi_cleanup(multi_);
    curl_slist_free_all(headers_);
  }
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;

  TimeUs now() override { return now_us(); }

  void send(size_t id, std::string body) override {
    auto exchange = std::make_unique<Exchange>();
    exchange->id = id;
    exchange->body = std::move(body);
    exchange->curl = take_handle();
    prepare(*exchange);
    curl_multi_add_handle(multi_, exchange->curl);
    running_.emplace(exchange->curl, std::move(exchange));
    int count = 0;
    curl_multi_perform(multi_, &count);
  }

  std::vector<Answered> wait(TimeUs until) override {
    std::vector<Answered> answers;
    int count = 0;
    curl_multi_perform(multi_, &count);
    take_ended(&answers);
    if (!answers.empty()) return answers;
    const TimeUs left = until - now_us();
    if (left <= 0) return answers;
    if (left < 1000) {  // finer than the library waits
      std::this_thread::sleep_for(std::chrono::microseconds(std::min<TimeUs>(left, 250)));
    } else {
      curl_multi_poll(multi_, nullptr, 0, static_cast<int>(std::min<TimeUs>(left / 1000, 1000)),
                      nullptr);
    }
    curl_multi_perform(multi_, &count);
    take_ended(&answers);
    return answers;
  }

  void drop_all() override {
    for (auto& [curl, exchange] : running_) {
      curl_multi_remove_handle(multi_, curl);
      curl_easy_cleanup(curl);
    }
    running_.clear();
  }

  double cpu_seconds() override {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

 private:
  CURL* take_handle() {
    if (idle_.empty()) return curl_easy_init();
    CURL* curl = idle_.back();
    idle_.pop_back();
    curl_easy_reset(curl);
    return curl;
  }

  void prepare(Exchange& exchange) {
    CURL* curl = exchange.curl;
    curl_easy_setopt(curl, CURLOPT_URL, target_.url.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(target_.timeout_seconds * 1000));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, exchange.body.data());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(exchange.body.size()));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, exchange.reason);
    if (!target_.ca.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, target_.ca.c_str());
  }

  void take_ended(std::vector<Answered>* answers) {
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto found = running_.find(message->easy_handle);
      answers->push_back(ended(*found->second, code));
      curl_multi_remove_handle(multi_, found->first);
      idle_.push_back(found->first);
      running_.erase(found);
    }
  }

  static Answered ended(Exchange& exchange, CURLcode code) {
    Answered answer;
    answer.id = exchange.id;
    answer.ended = now_us();
    curl_easy_getinfo(exchange.curl, CURLINFO_RESPONSE_CODE, &answer.status);
    answer.connected = code != CURLE_COULDNT_CONNECT && code != CURLE_COULDNT_RESOLVE_HOST;
    answer.notes = exchange.reader.finish(answer.status);
    if (code != CURLE_OK && !answer.notes.done) {
      answer.notes.error = exchange.reason[0] != 0 ? exchange.reason : curl_easy_strerror(code);
    }
    return answer;
  }

  const Target target_;
  CURLM* multi_;
  curl_slist* headers_ = nullptr;
  std::map<CURL*, std::unique_ptr<Exchange>> running_;
  std::vector<CURL*> idle_;
};

}  // namespace

Result<std::unique_ptr<Transport>> open_transport(const Target& target) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  CURLM* multi = curl_multi_init();
  if (multi == nullptr) return make_error(ErrorCode::kInternal, "libcurl cannot begin");
  return std::unique_ptr<Transport>(std::make_unique<CurlTransport>(target, multi));
}

}  // namespace headrace::loads
