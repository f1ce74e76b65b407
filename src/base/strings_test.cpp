#include "base/strings.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace headrace {
namespace strings_test {

TEST(Strings, LettersBecomeSmallAndNothingElseChanges) {
  EXPECT_EQ(to_lower(""), "");
  EXPECT_EQ(to_lower("AbZ@[`{09"), "abz@[`{09");
  EXPECT_EQ(to_lower("\xC3\x84\xFFQ"), "\xC3\x84\xFFq");
  EXPECT_EQ(to_lower(std::string_view("A\0B", 3)), std::string("a\0b", 3));
}

TEST(Strings, TrimmingTakesBlanksAndTabsOfBothEnds) {
  struct Case {
    std::string_view text, trimmed;
  };
  constexpr Case kCases[] = {{"", ""},          {" \t ", ""},   {"a", "a"},
                             {"\ta b ", "a b"}, {" \n ", "\n"}, {"a\t", "a"}};
  for (const Case& c : kCases) EXPECT_EQ(trim_spaces(c.text), c.trimmed) << "'" << c.text << "'";
}

TEST(Strings, ListsLoseTheirBlanksAndEmptyElements) {
  using List = std::vector<std::string_view>;
  struct Case {
    std::string_view text;
    List elements;
  };
  const Case cases[] = {
      {"", {}},
      {",", {}},
      {" , ,\t", {}},
      {"a", {"a"}},
      {"a,b", {"a", "b"}},
      {" a , b ", {"a", "b"}},
      {"a,,b,", {"a", "b"}},
      {",a b,c", {"a b", "c"}},
  };
  for (const Case& c : cases) EXPECT_EQ(split_list(c.text), c.elements) << "'" << c.text << "'";
}

TEST(Strings, SizesHaveOneDecimalUnlessItIsZero) {
  constexpr size_t kKiB = 1024, kMiB = kKiB << 10, kGiB = kMiB << 10, kTiB = kGiB << 10;
  struct Case {
    size_t num_bytes;
    std::string_view text;
  };
  constexpr Case kCases[] = {
      {0, "0 bytes"},
      {1, "1 bytes"},
      {1023, "1023 bytes"},
      {kKiB, "1 KiB"},
      {kKiB + 51, "1 KiB"},
      {kKiB + 52, "1.1 KiB"},
      {1536, "1.5 KiB"},
      {kMiB - 1, "1 MiB"},  // and not 1024.0 KiB
      {kMiB, "1 MiB"},
      {98362432, "93.8 MiB"},
      {300 * kMiB, "300 MiB"},
      {kGiB - kMiB, "1023 MiB"},
      {2 * kGiB, "2 GiB"},
      {kGiB + kGiB / 2, "1.5 GiB"},
      {kTiB, "1 TiB"},
      {2048 * kTiB, "2048 TiB"},
      {SIZE_MAX, "16777216 TiB"},
  };
  for (const Case& c : kCases) EXPECT_EQ(format_bytes(c.num_bytes), c.text) << c.num_bytes;
}

}  // namespace strings_test
}  // namespace headrace
