#include "server/api/parts/call_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <random>

namespace headrace {
namespace {

constexpr size_t kShortId = 9;

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// FNV-1a.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string nine_characters(std::string_view id) {
  if (id.size() == kShortId && std::all_of(id.begin(), id.end(), is_plain)) return std::string(id);
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string fit;
  for (uint64_t rest = hash_of(id); fit.size() < kShortId; rest /= kLetters.size()) {
    fit += kLetters[rest % kLetters.size()];
  }
  return fit;
}

std::string text_of(const boost::json::object& object, std::string_view name) {
  const boost::json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

class IdFitter {
 public:
  explicit IdFitter(CallIds wanted) : wanted_(wanted) {}

  void fit_call(boost::json::object& call) {
    const std::string old = text_of(call, "id");
    const std::string fit = new_id(old, call);
    if (!old.empty()) known_[old] = fit;
    call["id"] = fit;
  }

  void fit_answer(boost::json::object& message) {
    const std::string old = text_of(message, "tool_call_id");
    if (old.empty()) return;
    const auto found = known_.find(old);
    if (found != known_.end()) {
      message["tool_call_id"] = found->second;
    } else if (wanted_ == CallIds::kNineCharacters) {
      message["tool_call_id"] = nine_characters(old);
    }
  }

 private:
  std::string new_id(const std::string& old, const boost::json::object& call) {
    const int index = num_calls_++;
    if (wanted_ == CallIds::kNineCharacters) {
      return nine_characters(old.empty() ? fmt::format("call {}", index) : old);
    }
    const boost::json::value* function = call.if_contains("function");
    const boost::json::object* object = function == nullptr ? nullptr : function->if_object();
    return fmt::format("functions.{}:{}", object == nullptr ? "" : text_of(*object, "name"), index);
  }

  const CallIds wanted_;
  int num_calls_ = 0;
  std::map<std::string, std::string> known_;
};

}  // namespace

CallIds call_ids_of(std::string_view source, bool counted) {
  if (counted) return CallIds::kCounted;
  const bool checks_length = source.find("length != 9") != std::string_view::npos;
  return checks_length ? CallIds::kNineCharacters : CallIds::kAny;
}

void fit_call_ids(boost::json::array& messages, CallIds wanted) {
  if (wanted == CallIds::kAny) return;
  IdFitter fitter(wanted);
  for (boost::json::value& value : messages) {
    boost::json::object* message = value.if_object();
    if (message == nullptr) continue;
    boost::json::value* calls = message->if_contains("tool_calls");
    if (calls != nullptr && calls->is_array()) {
      for (boost::json::value& call : calls->get_array()) {
        if (call.is_object()) fitter.fit_call(call.get_object());
      }
    }
    fitter.fit_answer(*message);
  }
}

std::string random_call_id() {
  constexpr size_t kBytes = 29;
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id = "call_";
  while (id.size() < kBytes) id += kLetters[random() % kLetters.size()];
  return id;
}

}  // namespace headrace
