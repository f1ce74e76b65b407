// Result<T>: a value, or the reason there is none. The only way input errors travel in headrace.
//
// Functions that can fail because of a file, a request or the system return Result<T>; callers
// propagate with TRY. No exception crosses a folder: a library's exceptions are caught in the one
// file that uses the library.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace headrace {

enum class ErrorCode : unsigned char {
  kInvalidArgument,  // the caller's input is wrong (HTTP 400)
  kUnprocessable,    // well-formed, but it fails each time it is computed (422): do not retry
  kNotFound,         // no such file, model, tensor or key (404)
  kUnsupported,      // well-formed, but this build cannot do it (400 / 501)
  kCorrupt,          // a file contradicts its own format
  kIo,               // the system refused: open, read, map, connect
  kExhausted,        // no memory, queue full, limit reached (429 / 503)
  kUnavailable,      // shutting down or not ready (503)
  kPermission,       // not allowed (401 / 403)
  kInternal,         // a library failed in a way that is not the user's doing (500)
};

// What went wrong, for a human. `message` names the cause, the value found and the value needed;
// `hint` says what to do, and may be empty. `param` is the request field at fault, if any.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string hint;
  std::string param;

  // "message (hint)": the one-line form for terminals and logs.
  std::string to_string() const { return hint.empty() ? message : message + " (" + hint + ")"; }
};

template <typename... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...), {}, {}};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  T& value() & { return checked(), std::get<0>(state_); }
  const T& value() const& { return checked(), std::get<0>(state_); }
  T value() && { return checked(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error error() && { return std::get<1>(std::move(state_)); }

 private:
  void checked() const { CHECK(ok(), "{}", std::get<1>(state_).message); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit

  bool ok() const { return ok_; }
  void value() const { CHECK(ok_, "{}", error_.message); }
  const Error& error() const& { return error_; }
  Error error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace headrace

// auto tensor = TRY(checkpoint.find(name));   TRY(check_header(bytes));
// Returns the error from the enclosing function if the expression failed, else yields its value.
// The counter gives nested uses names of their own.
#define TRY(expression) HEADRACE_TRY_AS(expression, __COUNTER__)
#define HEADRACE_TRY_AS(expression, number) HEADRACE_TRY_NAMED(expression, number)
#define HEADRACE_TRY_NAMED(expression, number)       \
  ({                                                 \
    auto try_result_##number = (expression);         \
    if (!try_result_##number.ok()) [[unlikely]] {    \
      return std::move(try_result_##number).error(); \
    }                                                \
    std::move(try_result_##number).value();          \
  })
