#include "cli/suggest.h"

#include <algorithm>
#include <cctype>

#include "base/edit_distance.h"

namespace headrace {
namespace {

constexpr size_t kMaxWord = 128;     // longer words are no typing mistakes, and cost the square
constexpr size_t kMinBeginning = 3;  // letters of a word that may stand for a longer name

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& names) {
  if (given.empty() || given.size() > kMaxWord) return {};
  const std::string word = lower(given);
  size_t fewest = std::max<size_t>(1, (word.size() + 1) / 3) + 1;
  std::string best;
  for (const std::string& name : names) {
    const std::string candidate = lower(name).substr(0, kMaxWord);
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
