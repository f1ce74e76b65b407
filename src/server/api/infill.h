// infill: text between a beginning and an end, for models that were trained to fill it in: they
// have tokens that mark the two and the place where their answer goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

namespace headrace {

struct InfillMarks {
  int32_t before = -1, after = -1, middle = -1;
  bool after_first = false;   // the end of the text comes before its beginning
  std::vector<int32_t> ends;  // tokens of this training that end the answer, beside end ids
};

// As a GGUF file's metadata names them, else by the spellings of the model families that have them.
std::optional<InfillMarks> find_infill_marks(const Tokenizer& tokenizer, const Metadata& metadata);

// The model's own first token, the marks and the two texts. Errors as Tokenizer::encode.
Result<std::vector<int32_t>> encode_infill(const InfillMarks& marks, std::string_view before,
                                           std::string_view after, const Tokenizer& tokenizer,
                                           const EncodeLimits& limits);

}  // namespace headrace
