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

// The error of a call that did not return kTkOk; takes the message.
inline Error textkit_error(TkStatus status, TkBytes message) {
  const std::string text = take_bytes(message);
  switch (status) {
    case kTkInvalid:
      return make_error(ErrorCode::kInvalidArgument, "{}", text);
    case kTkUnsupported:
      return make_error(ErrorCode::kUnsupported, "{}", text);
    case kTkCorrupt:
      return make_error(ErrorCode::kCorrupt, "{}", text);
    case kTkOk:
    case kTkInternal:
      break;
  }
  return make_error(ErrorCode::kInternal, "{}", text);
}

}  // namespace headrace
