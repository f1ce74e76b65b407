// Calling textkit: views in, Results out.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "textkit.h"

namespace headrace {

inline TkView tk_view(std::string_view text) { return {text.data(), text.size()}; }

inline std::string take_bytes(TkBytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  tk_free_bytes(bytes);
  return text;
}

// The error of a call that did not return kTkOk.
inline Error textkit_error(TkStatus status, std::string_view text) {
  switch (status) {
    case kTkInvalid:
      return make_error(ErrorCode::kInvalidArgument, "{}", text);
    case kTkUnsupported:
      return make_error(ErrorCode::kUnsupported, "{}", text);
    case kTkCorrupt:
      return make_error(ErrorCode::kCorrupt, "{}", text);
    case kTkExhausted:
      return make_error(ErrorCode::kExhausted, "{}", text);
    case kTkStopped:
      return make_error(ErrorCode::kUnavailable, "{}", text);
    case kTkTooLong:
      return make_error(ErrorCode::kInvalidArgument, "{}", text);
    case kTkOk:
    case kTkInternal:
      break;
  }
  return make_error(ErrorCode::kInternal, "{}", text);
}

// Takes the message.
inline Error textkit_error(TkStatus status, TkBytes message) {
  return textkit_error(status, take_bytes(message));
}

}  // namespace headrace
