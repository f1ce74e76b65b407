// answer_id: names of answers.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// The prefix and 24 random hexadecimal digits: "chatcmpl-0123...". Any thread.
std::string fresh_answer_id(std::string_view prefix);

}  // namespace headrace
