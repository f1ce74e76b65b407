// output_part: what an answer consists of, in no client's language, and who takes it apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// A piece of an answer, by what it is. A choice's pieces of one kind follow each other in order.
struct OutputPart {
  enum class Kind : uint8_t { kText, kReasoning, kToolCall, kRefusal };
  Kind kind = Kind::kText;
  std::string text;       // kToolCall: of its arguments, which are JSON text
  int call_idx = 0;       // kToolCall: which call of the choice, from 0
  std::string call_id;    // kToolCall: in its first piece
  std::string call_name;  // kToolCall: of the function; in its first piece
};

// Takes the text of one choice apart as it comes, by the marks that a model writes around its
// reasoning and its calls. One per choice; one thread.
class PartParser {
 public:
  virtual ~PartParser() = default;
  // What is sure by now; a piece that could be the beginning of a mark is held back.
  virtual std::vector<OutputPart> push(std::string_view text) = 0;
  // The rest. is_cut: the model has not ended the answer, so a call stays as far as it came.
  virtual std::vector<OutputPart> finish(bool is_cut) = 0;
  // What comes next is reasoning, unless it says otherwise.
  virtual bool is_reasoning() const { return false; }
  // What comes next may be text: no reasoning, and in no call that is sure.
  virtual bool is_text() const { return true; }
};

}  // namespace headrace
