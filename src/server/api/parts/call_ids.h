// call_ids: ids of calls in a conversation, as the model's template wants them.
#pragma once

#include <boost/json/array.hpp>
#include <string>
#include <string_view>

namespace headrace {

enum class CallIds : unsigned char {
  kAny,
  kNineCharacters,  // letters and digits
  kCounted,         // "functions.NAME:3", counted through the conversation
};

// What the source of a template asks for. counted: its format counts calls.
CallIds call_ids_of(std::string_view source, bool counted);

// Rewrites the ids of calls and of the messages that answer them; what is fit stays. The same id
// becomes the same id.
void fit_call_ids(boost::json::array& messages, CallIds wanted);

// Random: "call_" and 24 characters.
std::string random_call_id();

}  // namespace headrace
