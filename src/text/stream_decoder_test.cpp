#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace headrace {
namespace stream_decoder_test {

// A tokenizer whose tokens are given byte strings: id i decodes to pieces[i].
class Pieces final : public Tokenizer {
 public:
  explicit Pieces(std::vector<std::string> pieces, DecodeScheme scheme = {})
      : pieces_(std::move(pieces)), scheme_(scheme) {}

  Result<std::vector<int32_t>> encode(std::string_view, bool, const EncodeLimits&) const override {
    return std::vector<int32_t>();
  }
  Result<std::string> decode(std::span<const int32_t>, bool) const override {
    return std::string();
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  std::optional<std::string> id_to_token(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return std::nullopt;
    return pieces_[static_cast<size_t>(id)];
  }
  std::optional<int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string token_bytes(int32_t id, bool) const override { return id_to_token(id).value_or(""); }
  std::string first_token_bytes(int32_t id, bool) const override {
    return std::string(1, '^').append(token_bytes(id, false));
  }
  bool is_special(int32_t) const override { return false; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }
  DecodeScheme decode_scheme() const override { return scheme_; }

 private:
  std::vector<std::string> pieces_;
  DecodeScheme scheme_;
};

struct Streamed {
  std::vector<std::string> pieces;
  std::string text;
  std::string stop;
};

Streamed stream(const Tokenizer& tokenizer, StreamDecoder decoder) {
  Streamed result;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const StreamPiece piece = decoder.push(id);
    result.pieces.push_back(piece.text);
    result.text += piece.text;
  }
  const StreamPiece last = decoder.finish();
  result.text += last.text;
  result.stop = last.stop;
  EXPECT_EQ(last.stopped, !last.stop.empty());
  return result;
}

TEST(StreamDecoder, EmitsOnlyWholeCharacters) {
  const Pieces tokenizer({"a\xF0", "\x9F\x99", "\x82", "b\xE2\x82"});
  const Streamed result = stream(tokenizer, StreamDecoder(tokenizer, {}, false));
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"a", "", "🙂", "b"}));
  EXPECT_EQ(result.text, "a🙂b\uFFFD");
}

TEST(StreamDecoder, MarksBrokenBytesAsTheSchemeSays) {
  const std::vector<std::string> broken = {"\xE2\x82", "x\xFF\x80"};
  const Pieces sequences(broken);
  EXPECT_EQ(stream(sequences, StreamDecoder(sequences, {}, false)).text, "\uFFFDx\uFFFD\uFFFD");
  const Pieces bytes(broken, {.mark_each_byte = true});
  EXPECT_EQ(stream(bytes, StreamDecoder(bytes, {}, false)).text, "\uFFFD\uFFFDx\uFFFD\uFFFD");
}

TEST(StreamDecoder, StopStringAcrossTokens) {
  const Pieces tokenizer({"one ", "ST", "A", "ST", "OP", " more"});
  const Streamed result = stream(tokenizer, StreamDecoder(tokenizer, {"STOP"}, false));
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"one ", "", "STA", "", "", ""}));
  EXPECT_EQ(result.stop, "STOP");
  EXPECT_EQ(stream(tokenizer, StreamDecoder(tokenizer, {"STOP"}, false, true)).text, "one STASTOP");
}

TEST(StreamDecoder, HeldBackTextComesAtTheEnd) {
  const Pieces tokenizer({"almost STO"});
  const Streamed result = stream(tokenizer, StreamDecoder(tokenizer, {"STOP"}, false));
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"almost "}));
  EXPECT_EQ(result.text, "almost STO");
}

TEST(StreamDecoder, StopStringOfReplacementCharacters) {
  const Pieces tokenizer({"a\xF0"});
  EXPECT_EQ(stream(tokenizer, StreamDecoder(tokenizer, {"\uFFFD"}, false)).stop, "\uFFFD");
}

TEST(StreamDecoder, ContextGoesBefore) {
  const Pieces plain({"x\xC3", "\xA9"});
  StreamDecoder decoder(plain, {}, false, false, {0});
  EXPECT_EQ(decoder.push(1).text, "é");
  const Pieces first({"x", "y"}, {.first_differs = true});
  EXPECT_EQ(stream(first, StreamDecoder(first, {}, false)).text, "^xy");
  EXPECT_EQ(stream(first, StreamDecoder(first, {}, false, false, {0})).text, "xy");
  const Pieces blanks({" ", "  x"}, {.strip_start_blanks = 2});
  EXPECT_EQ(stream(blanks, StreamDecoder(blanks, {}, false)).text, " x");
  EXPECT_EQ(stream(blanks, StreamDecoder(blanks, {}, false, false, {1})).text, "   x");
}

TEST(StreamDecoder, IdsOutOfRangeAddNothing) {
  const Pieces tokenizer({"a"});
  StreamDecoder decoder(tokenizer, {}, false);
  EXPECT_EQ(decoder.push(-1).text + decoder.push(7).text + decoder.push(0).text, "a");
}

// However a text is cut into tokens, the same text comes out and the same stop string ends it.
TEST(StreamDecoder, CutsDoNotMatter) {
  std::mt19937 random(3);
  std::map<std::string, int> stops_seen;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t i = 1 + random() % 12; i > 0; --i) {
      text += std::vector<std::string>{"a", "b", "ab", "é", "🙂"}[random() % 5];
    }
    const std::vector<std::string> stops = {"abab", "bé", "aba", "🙂🙂", "b🙂a"};
    const Pieces whole({text});
    const Streamed expected = stream(whole, StreamDecoder(whole, stops, false));
    std::vector<std::string> cut;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 4;
      cut.push_back(text.substr(at, length));
      at += length;
    }
    const Pieces parts(cut);
    const Streamed result = stream(parts, StreamDecoder(parts, stops, false));
    ASSERT_EQ(result.text, expected.text) << text;
    ASSERT_EQ(result.stop, expected.stop) << text;
    ++stops_seen[result.stop];
  }
  EXPECT_EQ(stops_seen.size(), 5u);  // "abab" never: "aba" completes before it
}

}  // namespace stream_decoder_test
}  // namespace headrace
