// SipHash-2-4 with 128 bits: names that nobody can aim at without the key, and that never meet.
//
// Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (INDOCRYPT 2012), in the form
// of their reference code with 16 bytes of output. A message is a row of 64-bit words, the bytes of
// each little-endian; so it equals the hash of the same bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace headrace {

struct HashKey {
  uint64_t first = 0, second = 0;
};

struct Digest {
  uint64_t first = 0, second = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

class KeyedDigest {
 public:
  explicit KeyedDigest(const HashKey& key)
      : v0_(key.first ^ 0x736f6d6570736575u),
        v1_(key.second ^ 0x646f72616e646f6du ^ 0xee),
        v2_(key.first ^ 0x6c7967656e657261u),
        v3_(key.second ^ 0x7465646279746573u) {}

  void add(uint64_t word) {
    v3_ ^= word;
    rounds(2);
    v0_ ^= word;
    ++num_words_;
  }
  void add(const Digest& digest) {
    add(digest.first);
    add(digest.second);
  }
  // Its length first, so that no two rows of texts are the same words.
  void add_text(std::string_view text) {
    add(uint64_t{text.size()});
    for (size_t i = 0; i < text.size(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min(sizeof(word), text.size() - i));
      add(word);
    }
  }
  Digest finish() {
    add(num_words_ << 59);  // 8 bytes each; the length in bytes is the highest byte
    v2_ ^= 0xee;
    rounds(4);
    const uint64_t first = v0_ ^ v1_ ^ v2_ ^ v3_;
    v1_ ^= 0xdd;
    rounds(4);
    return {first, v0_ ^ v1_ ^ v2_ ^ v3_};
  }

 private:
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0_ += v1_;
      v2_ += v3_;
      v1_ = std::rotl(v1_, 13) ^ v0_;
      v3_ = std::rotl(v3_, 16) ^ v2_;
      v0_ = std::rotl(v0_, 32);
      v2_ += v1_;
      v0_ += v3_;
      v1_ = std::rotl(v1_, 17) ^ v2_;
      v3_ = std::rotl(v3_, 21) ^ v0_;
      v2_ = std::rotl(v2_, 32);
    }
  }

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t num_words_ = 0;
};

}  // namespace headrace
