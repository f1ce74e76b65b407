#include "server/api/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace base64_test {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(BytesOfBase64, AreThoseOfTheStandard) {
  constexpr std::pair<const char*, const char*> kVectors[] = {{"", ""},
                                                              {"Zg==", "f"},
                                                              {"Zm8=", "fo"},
                                                              {"Zm9v", "foo"},
                                                              {"Zm9vYg==", "foob"},
                                                              {"Zm9vYmE=", "fooba"},
                                                              {"Zm9vYmFy", "foobar"},
                                                              {"+/+/", "\xfb\xff\xbf"}};
  for (const auto& [text, bytes] : kVectors) {
    const auto found = bytes_of_base64(text);
    ASSERT_TRUE(found.ok()) << text;
    EXPECT_EQ(text_of(*found), bytes);
  }
}

TEST(BytesOfBase64, LongTextsAreDecodedInPieces) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "Zm9v";
  const auto found = bytes_of_base64(text + "Zg==");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->size(), 900'001u);
  EXPECT_EQ(text_of(*found).substr(899'997), "foof");
}

TEST(BytesOfBase64, NothingElseIsTaken) {
  std::string inner(1 << 20, 'A');
  inner.back() = '\n';
  for (const std::string& text :
       {std::string("Z"), std::string("Zg"), std::string("Zg="), std::string("Zm9v\n"),
        std::string(" Zm9v   "), std::string("Zm9\n"), std::string("\nm9v"),
        std::string("Zg==Zg=="), std::string("Z==="), std::string("===="), std::string("Zm9-"),
        std::string("Zm\0v", 4), inner + "AAAA"}) {
    EXPECT_FALSE(bytes_of_base64(text).ok()) << text.substr(0, 20);
  }
}

}  // namespace base64_test
}  // namespace headrace
