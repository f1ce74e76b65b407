#include "cli/suggest.h"

#include <algorithm>

#include "base/edit_distance.h"
#include "base/strings.h"

namespace headrace {
namespace {

constexpr size_t kMaxWord = 128;     // longer words are no typing mistakes, and cost the square
constexpr size_t kMinBeginning = 3;  // letters of a word that may stand for a longer name

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& names) {
  if (given.empty() || given.size() > kMaxWord) return {};
  const std::string word = to_lower(given);
  size_t fewest = std::max<size_t>(1, (word.size() + 1) / 3) + 1;
  std::string best;
  for (const std::string& name : names) {
    const std::string candidate = to_lower(name).substr(0, kMaxWord);
    const bool begins = word.size() >= kMinBeginning && candidate.starts_with(word);
    const size_t edits = begins ? 1 : edit_distance(word, candidate);
    if (edits < fewest) {
      fewest = edits;
      best = name;
    }
  }
  return best;
}

}  // namespace headrace
