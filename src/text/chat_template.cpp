#include "text/chat_template.h"

#include <ctime>
#include <utility>

#include "text/textkit_call.h"

namespace headrace {

namespace {

struct TemplateCloser {
  void operator()(TkTemplate* handle) const { tk_template_free(handle); }
};

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
  TextkitTemplate(TkTemplate* handle, std::string_view source) : handle_(handle), source_(source) {}

  Result<std::string> render(std::string_view options_json,
                             std::optional<std::string_view> now) const override {
    const std::string time = now ? std::string(*now) : local_time();
    TkBytes text = {};
    TkBytes error = {};
    const TkStatus status =
        tk_template_render(handle_.get(), tk_view(options_json), tk_view(time), &text, &error);
    if (status != kTkOk) return textkit_error(status, error);
    return take_bytes(text);
  }

  const std::string& source() const override { return source_; }

 private:
  std::unique_ptr<TkTemplate, TemplateCloser> handle_;
  std::string source_;
};

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(std::string_view source,
                                                           std::string_view special_tokens_json) {
  TkTemplate* handle = nullptr;
  TkBytes error = {};
  const TkStatus status =
      tk_template_new(tk_view(source), tk_view(special_tokens_json), &handle, &error);
  if (status != kTkOk) return textkit_error(status, error);
  return std::unique_ptr<ChatTemplate>(std::make_unique<TextkitTemplate>(handle, source));
}

}  // namespace headrace
