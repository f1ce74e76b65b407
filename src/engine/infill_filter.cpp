#include "engine/infill_filter.h"

#include <algorithm>
#include <string_view>

namespace headrace {
namespace {

double sum_of(const std::vector<InfillChoice>& choices) {
  double sum = 0;
  for (const InfillChoice& choice : choices) sum += choice.weight;
  return sum;
}

// The likelier of two texts of which one begins the other has the weight of both.
void join_beginnings(std::vector<InfillChoice>& choices, const TextOfToken& text_of) {
  std::vector<std::string> texts;
  texts.reserve(choices.size());
  for (const InfillChoice& choice : choices) texts.push_back(text_of(choice.id));
  for (size_t i = 0; i < choices.size(); ++i) {
    for (size_t k = 0; k < choices.size() && choices[i].weight > 0; ++k) {
      if (i == k || choices[k].weight == 0 || texts[i].empty()) continue;
      if (!std::string_view(texts[k]).starts_with(texts[i])) continue;
      const bool other_stays = choices[k].weight > choices[i].weight;
      InfillChoice& stays = choices[other_stays ? k : i];
      InfillChoice& goes = choices[other_stays ? i : k];
      stays.weight += goes.weight;
      goes.weight = 0;
    }
  }
  std::erase_if(choices, [](const InfillChoice& choice) { return choice.weight == 0; });
}

// Ends, and text of at least this share of all.
void keep_share(std::vector<InfillChoice>& choices, double share) {
  const double least = share * sum_of(choices);
  std::erase_if(choices, [least](const InfillChoice& choice) {
    return !choice.ends && choice.weight < least;
  });
}

auto count_texts(const std::vector<InfillChoice>& choices) {
  return std::count_if(choices.begin(), choices.end(),
                       [](const InfillChoice& choice) { return !choice.ends; });
}

}  // namespace

std::vector<InfillChoice> keep_infill(std::vector<InfillChoice> choices,
                                      const TextOfToken& text_of) {
  constexpr double kEndsCount = 3;
  constexpr double kLikely = 0.2;
  double ends = 0;
  for (const InfillChoice& choice : choices) ends += choice.ends ? choice.weight : 0;
  const double texts = sum_of(choices) - ends;
  if (kEndsCount * ends * static_cast<double>(choices.size()) > texts) {
    std::erase_if(choices, [](const InfillChoice& choice) { return !choice.ends; });
    return choices;
  }
  join_beginnings(choices, text_of);
  keep_share(choices, kLikely);
  if (count_texts(choices) == 0) return {};
  keep_share(choices, 1.0 / static_cast<double>(count_texts(choices) + 1));
  return choices;
}

}  // namespace headrace
