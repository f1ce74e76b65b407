// infill_filter: which token may come next in text that is filled in between a beginning and an
// end. Such texts are short, and it is often best to end them; and a model may cut a word in many
// ways, each of which looks unlikely beside what they are together.
//
// 1. Where the ends of an answer weigh more than a third of what a text token weighs on average,
//    only ends stay. 2. A token whose text begins that of another is the same way to go on: the
// likelier of the two stands for both. 3. Text of less than a fifth of the weight goes, then what
// has less than its share of what is left. If no text stays, the answer ends.
// Source: llama.cpp's sampler "infill". Pure; for a few choices: each is compared with each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headrace {

// The bytes of a token; empty: it has no text. Called on the engine's threads.
using TextOfToken = std::function<std::string(int32_t)>;

inline constexpr int32_t kMaxInfillChoices = 256;

struct InfillChoice {
  int32_t id = 0;
  double weight = 0;  // > 0
  bool ends = false;  // the answer
};

// Those of `choices`, heaviest first, that may come, with what they weigh now. Empty: the answer
// ends.
std::vector<InfillChoice> keep_infill(std::vector<InfillChoice> choices,
                                      const TextOfToken& text_of);

}  // namespace headrace
