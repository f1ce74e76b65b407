#include "engine/infill_filter.h"

#include <gtest/gtest.h>

#include <map>

namespace headrace {
namespace infill_filter_test {

const std::map<int32_t, std::string> kTexts = {{1, "re"}, {2, "return"}, {3, "ret"}, {4, "x"},
                                               {5, "y"},  {6, "z"},      {8, ""},    {9, ""}};

std::string text_of(int32_t id) { return kTexts.at(id); }

std::vector<int32_t> ids_of(const std::vector<InfillChoice>& choices) {
  std::vector<int32_t> ids;
  for (const InfillChoice& choice : choices) ids.push_back(choice.id);
  return ids;
}

TEST(InfillFilter, EndsAloneStayWhereTheyWeighMuch) {
  const auto kept =
      keep_infill({{4, 0.6, false}, {8, 0.2, true}, {5, 0.15, false}, {9, 0.05, true}}, text_of);
  EXPECT_EQ(ids_of(kept), (std::vector<int32_t>{8, 9}));
  // Thrice the end's weight times three choices is less than that of the texts.
  const auto both = keep_infill({{4, 0.65, false}, {5, 0.26, false}, {8, 0.09, true}}, text_of);
  EXPECT_EQ(ids_of(both), (std::vector<int32_t>{4, 8}));
}

TEST(InfillFilter, BeginningsOfAWordCountTogether) {
  // Apart none of "return" is likelier than "x"; together they are all that is likely.
  const auto kept = keep_infill(
      {{4, 0.15, false}, {2, 0.32, false}, {3, 0.3, false}, {1, 0.2, false}, {5, 0.03, false}},
      text_of);
  ASSERT_EQ(ids_of(kept), (std::vector<int32_t>{2}));
  EXPECT_DOUBLE_EQ(kept[0].weight, 0.82);
}

TEST(InfillFilter, WhatHasLessThanItsShareGoes) {
  // Three texts of at least a fifth: of what is left each needs a quarter.
  const auto kept = keep_infill({{4, 0.4, false}, {5, 0.38, false}, {6, 0.22, false}}, text_of);
  EXPECT_EQ(ids_of(kept), (std::vector<int32_t>{4, 5}));
}

TEST(InfillFilter, TokensOfOneTextCountOnce) {
  const auto kept =
      keep_infill({{4, 0.3, false}, {7, 0.3, false}, {5, 0.25, false}, {6, 0.15, false}},
                  [](int32_t id) { return id == 7 ? "x" : text_of(id); });
  ASSERT_EQ(ids_of(kept), (std::vector<int32_t>{4}));
  EXPECT_DOUBLE_EQ(kept[0].weight, 0.6);
}

TEST(InfillFilter, ManyUnlikelyTextsAndNoEndComeToNothing) {
  std::vector<InfillChoice> choices;
  for (int32_t id = 100; id < 110; ++id) choices.push_back({id, 0.1, false});
  const auto letters = [](int32_t id) { return std::string(1, static_cast<char>('a' + id - 100)); };
  EXPECT_TRUE(keep_infill(choices, letters).empty());
}

}  // namespace infill_filter_test
}  // namespace headrace
