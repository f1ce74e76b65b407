// answers: who answers for `run` and `chat`: a model that this process has loaded, or a running
// server (--server). One at a time; the thread of the command.
#pragma once

#include <boost/json/array.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/generate.h"
#include "options.h"
#include "server/api/answer_form.h"

namespace headrace {

struct Question {
  const boost::json::array* messages = nullptr;  // null: the text is continued
  std::string text;
  std::vector<int32_t> ids;  // of either, by the source's own encode_...()
  Request settings;          // all but the prompt
  std::vector<std::string> stops;
  Structure structure;                          // what the answer is held to
  std::function<bool(std::string_view)> write;  // as GenerateArgs::write
  const std::atomic<bool>* interrupted = nullptr;
};

class AnswerSource {
 public:
  virtual ~AnswerSource() = default;
  virtual std::string name() const = 0;  // of the model, for people
  virtual bool is_base() const = 0;      // it continues texts and takes no messages
  virtual ContextLimit context() const = 0;
  virtual const SamplingDefaults& sampling() const = 0;  // recommended, if that is known here
  // structured: the answer is held to a form, so that it cannot begin with reasoning.
  virtual Result<std::vector<int32_t>> encode_messages(const boost::json::array& messages,
                                                       bool structured) = 0;
  virtual Result<std::vector<int32_t>> encode_text(const std::string& text) = 0;
  virtual Result<Answer> answer(Question question) = 0;
};

// Of --server, if it is given: then `model` is asked for there if `named`, else the server's first.
// Else of the model, loaded with progress on standard error.
Result<std::unique_ptr<AnswerSource>> open_answers(const Options& options, const std::string& model,
                                                   bool named);
// A server's alone.
Result<std::unique_ptr<AnswerSource>> open_server_answers(const Options& options,
                                                          const std::string& model);

}  // namespace headrace
