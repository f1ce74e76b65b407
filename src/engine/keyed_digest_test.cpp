#include "engine/keyed_digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace keyed_digest_test {

// Key 00 01 .. 0f, message 00 01 .. of whole words: vectors of the authors' reference code.
TEST(KeyedDigest, IsSipHash128) {
  const HashKey key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  struct Vector {
    int num_words;
    Digest expected;
  };
  const Vector vectors[] = {
      {0, {0xe6a825ba047f81a3u, 0x930255c71472f66du}},
      {1, {0x61f55862baa9623bu, 0xb49714f364e2830fu}},
      {2, {0xbb54b067caa4e26eu, 0x77052385bf1533fdu}},
      {10, {0xf870437ae16ac7d2u, 0x22f80d5a79a4fb58u}},
  };
  for (const Vector& vector : vectors) {
    KeyedDigest digest(key);
    for (int i = 0; i < vector.num_words; ++i) {
      uint64_t word = 0;
      for (int b = 7; b >= 0; --b) word = word << 8 | static_cast<uint64_t>(8 * i + b);
      digest.add(word);
    }
    EXPECT_EQ(digest.finish(), vector.expected) << vector.num_words;
  }
}

TEST(KeyedDigest, TextsDoNotRunTogether) {
  const auto digest_of = [](const std::vector<std::string_view>& texts) {
    KeyedDigest digest({1, 2});
    for (const std::string_view text : texts) digest.add_text(text);
    return digest.finish();
  };
  EXPECT_EQ(digest_of({"ab", "c"}), digest_of({"ab", "c"}));
  EXPECT_NE(digest_of({"ab", "c"}), digest_of({"a", "bc"}));
  EXPECT_NE(digest_of({"abc"}), digest_of({"abc", ""}));
  EXPECT_NE(digest_of({std::string_view("a\0", 2)}), digest_of({"a"}));
  EXPECT_NE(digest_of({"12345678", "9"}), digest_of({"123456789"}));
}

}  // namespace keyed_digest_test
}  // namespace headrace
