#include "checkpoint/digest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/descriptor.h"
#include "base/testing/temp_folder.h"

namespace headrace {
namespace digest_test {

using testing::TempFolder;

template <typename Bytes>
std::string hex(const Bytes& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

std::vector<std::byte> sample_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 8));
  return bytes;
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// FIPS 180-2, appendix B.
TEST(FileDigest, Sha256OfPublishedTexts) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(FileDigest, ChecksumsMissNoSingleBit) {
  auto bytes = sample_bytes(300);
  std::set<std::string> seen = {hex(checksum(bytes))};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << bit % 8);
    bytes[bit / 8] ^= mask;
    EXPECT_TRUE(seen.insert(hex(checksum(bytes))).second) << "bit " << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST(FileDigest, ChecksumsKnowTheLengthAndTheOrder) {
  const auto bytes = sample_bytes(64);
  std::set<std::string> seen;
  for (size_t length = 0; length <= bytes.size(); ++length) {
    seen.insert(hex(checksum(std::span(bytes).first(length))));
  }
  EXPECT_EQ(seen.size(), bytes.size() + 1);
  const std::vector<std::byte> zeros(16);
  EXPECT_NE(checksum(zeros), checksum({}));
}

TEST(FileDigest, PiecesAreSummedEachByItselfOnAnyNumberOfThreads) {
  const auto bytes = sample_bytes(1000);
  for (const size_t piece_bytes : {size_t{1}, size_t{7}, size_t{250}, size_t{999}, size_t{5000}}) {
    const size_t count = (bytes.size() + piece_bytes - 1) / piece_bytes;
    std::vector<Checksum> expected;
    for (size_t at = 0; at < bytes.size(); at += piece_bytes) {
      const size_t size = std::min(piece_bytes, bytes.size() - at);
      expected.push_back(checksum(std::span(bytes).subspan(at, size)));
    }
    for (const int num_threads : {0, 1, 3}) {
      std::vector<Checksum> found(count);
      checksum_pieces(bytes, piece_bytes, num_threads, found);
      EXPECT_EQ(found, expected) << piece_bytes << " " << num_threads;
    }
  }
}

TEST(FileDigest, ReadingGivesTheBytesAndTheSumsOfWhatArrived) {
  const TempFolder folder;
  const auto bytes = sample_bytes(1'000'000);  // more than is read at once
  const std::string path = folder.write("weights", "head" + as_text(bytes));
  const Descriptor file = open_file(path).value();
  constexpr size_t kPiece = 300'000;
  std::vector<Checksum> expected(4), found(4);
  checksum_pieces(bytes, kPiece, 1, expected);
  std::vector<std::byte> memory(bytes.size());
  const Status read = read_pieces({file.get(), 4, path}, memory, kPiece, 2, found);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(memory, bytes);
  EXPECT_EQ(found, expected);
}

TEST(FileDigest, AFileThatEndsEarlyIsNamedOnce) {
  const TempFolder folder;
  const std::string path = folder.write("weights", std::string(1000, 'x'));
  const Descriptor file = open_file(path).value();
  std::vector<std::byte> memory(1200);
  std::vector<Checksum> sums(12);
  const Status read = read_pieces({file.get(), 0, path}, memory, 100, 3, sums);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kIo);
  EXPECT_NE(read.error().message.find("'" + path + "' ends at byte 1"), std::string::npos)
      << read.error().message;
}

TEST(FileDigest, TheContentsOfFilesAreTheirBytesAndWhereTheyEnd) {
  const TempFolder folder;
  int num_written = 0;
  const auto digest_of = [&](const std::vector<std::string>& contents, int num_threads = 1) {
    std::vector<MappedFile> files;
    for (const std::string& text : contents) {
      files.push_back(MappedFile::open(folder.write(std::to_string(num_written++), text)).value());
    }
    return hex(content_digest(files, num_threads));
  };
  const std::string whole = digest_of({"abcdef"});
  EXPECT_EQ(digest_of({"abcdef"}), whole) << "names and times do not count";
  const std::set<std::string> all = {
      whole,
      digest_of({"abcdeg"}),
      digest_of({"abcdef", ""}),
      digest_of({"abc", "def"}),
      digest_of({"def", "abc"}),
      digest_of({"ab", "cdef"}),
      digest_of({}),
  };
  EXPECT_EQ(all.size(), 7u);
}

TEST(FileDigest, TheContentsOfLargeFilesAreTheSameOnAnyNumberOfThreads) {
  const TempFolder folder;
  const std::string path = folder.write("large", as_text(sample_bytes((size_t{8} << 20) + 12345)));
  std::vector<MappedFile> files;
  files.push_back(MappedFile::open(path).value());
  const FileDigest one = content_digest(files, 1);
  EXPECT_EQ(content_digest(files, 2), one);
}

TEST(DigestDeathTest, TheNumberOfSumsIsThatOfThePieces) {
  std::vector<Checksum> sums(3);
  EXPECT_DEATH(checksum_pieces(sample_bytes(10), 5, 1, sums), "3 pieces");
}

}  // namespace digest_test
}  // namespace headrace
