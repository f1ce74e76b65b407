// SipHash-1-3 of 64-bit words: a hash whose buckets cannot be aimed at without its key.
//
// Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (INDOCRYPT 2012), with one
// round per word and three at the end; the length is the number of words.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace headrace {

struct HashKey {
  uint64_t first = 0, second = 0;
};

class KeyedHash {
 public:
  explicit KeyedHash(const HashKey& key)
      : v0_(key.first ^ 0x736f6d6570736575u),
        v1_(key.second ^ 0x646f72616e646f6du),
        v2_(key.first ^ 0x6c7967656e657261u),
        v3_(key.second ^ 0x7465646279746573u) {}

  void add(uint64_t word) {
    v3_ ^= word;
    round();
    v0_ ^= word;
    ++num_words_;
  }
  uint64_t finish() {
    add(num_words_ << 56);
    v2_ ^= 0xff;
    for (int i = 0; i < 3; ++i) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void round() {
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

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t num_words_ = 0;
};

}  // namespace headrace
