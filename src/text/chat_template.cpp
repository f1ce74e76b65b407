#include "text/chat_template.h"

#include <ctime>
#include <utility>

#include "text/render_process.h"

namespace headrace {

namespace {

// "2026-01-02T03:04:05" in the local time zone.
std::string local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

class TextkitTemplate final : public ChatTemplate {
 public:
  TextkitTemplate(std::string_view source, std::string_view special_tokens_json,
                  std::string_view plain_json)
      : source_(source), process_(source, special_tokens_json, plain_json) {}

  Status start() { return process_.start(); }

  Result<std::string> render(std::string_view options_json,
                             std::optional<std::string_view> now) const override {
    return process_.render(options_json, now ? std::string(*now) : local_time());
  }

  const std::string& source() const override { return source_; }

 private:
  const std::string source_;
  mutable RenderProcess process_;
};

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(std::string_view source,
                                                           std::string_view special_tokens_json,
                                                           std::string_view plain_json) {
  auto chat_template = std::make_unique<TextkitTemplate>(source, special_tokens_json, plain_json);
  TRY(chat_template->start());
  return std::unique_ptr<ChatTemplate>(std::move(chat_template));
}

}  // namespace headrace
