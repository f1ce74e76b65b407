// Conversation: what has been said, and which part of it the next prompt holds.
#pragma once

#include <boost/json/array.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/context_limit.h"

namespace headrace {

class Conversation {
 public:
  // The ids of the prompt that these messages become.
  using EncodeFn = std::function<Result<std::vector<int32_t>>(const boost::json::array& messages)>;

  struct Prompt {
    boost::json::array messages;
    std::vector<int32_t> ids;
    int num_forgotten = 0;  // messages that this prompt leaves out and the last one held
  };

  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }
  const boost::json::array& messages() const { return messages_; }  // all, also forgotten ones

  void add(std::string_view role, std::string_view content);
  void clear();
  // Takes back the newest message if it has this role.
  bool take_back(std::string_view role);

  // The newest messages that leave at least `room` tokens of `context` free, after the system
  // message, which always stays. Where they do not fit, the oldest are forgotten up to the next
  // question. kInvalidArgument if the last question alone leaves no token for an answer.
  Result<Prompt> make_prompt(const EncodeFn& encode, const ContextLimit& context, int64_t room);

 private:
  boost::json::array kept_messages() const;
  bool forget_oldest_turn();

  std::string system_;
  boost::json::array messages_;
  size_t first_kept_ = 0;
};

}  // namespace headrace
