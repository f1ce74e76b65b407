#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/temp_folder.h"
#include "checkpoint/testing/file_builders.h"

namespace headrace {
namespace gguf_test {

using testing::ByteWriter;
using testing::GgufBuilder;
using Bytes = std::vector<std::byte>;

Error error_of(const Bytes& bytes) {
  const auto parsed = parse_gguf(bytes, "x.gguf");
  if (parsed.ok()) return Error{ErrorCode::kInternal, "accepted", {}, {}};
  return parsed.error();
}

void expect_corrupt(const Bytes& bytes, const std::string& message) {
  const Error error = error_of(bytes);
  EXPECT_EQ(error.message, "x.gguf: " + message);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
}

void expect_unsupported(const Bytes& bytes, const std::string& message) {
  const Error error = error_of(bytes);
  EXPECT_EQ(error.message, "x.gguf: " + message);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
}

Bytes header(uint32_t version, uint64_t num_tensors, uint64_t num_keys, size_t num_more_bytes = 0) {
  ByteWriter file;
  file.raw("GGUF").put(version).put(num_tensors).put(num_keys).zeros(num_more_bytes);
  return file.bytes();
}

// ---- what is accepted ----

TEST(Gguf, ReadsKeysAndTensors) {
  GgufBuilder builder;
  builder.text_key("general.architecture", "llama").key("n", testing::kU32, uint32_t{7});
  builder.array_key<int32_t>("types", testing::kI32, {1, -2, 3});
  builder.texts_key("tokens", {"a", "", "\xff"});
  builder.tensor("w", {64, 3}, DType::kQ4_0).tensor("b", {3}, DType::kF32);
  for (const uint32_t version : {2u, 3u}) {
    const Bytes bytes = builder.build(version);
    const auto checkpoint = parse_gguf(bytes, "x.gguf");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const Checkpoint& c = **checkpoint;
    EXPECT_EQ(c.kind(), CheckpointKind::kGguf);
    EXPECT_EQ(c.file_bytes(), bytes.size());
    EXPECT_EQ(c.metadata().text("general.architecture"), "llama");
    EXPECT_EQ(c.metadata().integer("n"), 7);
    EXPECT_EQ(c.metadata().integers("types"), (std::vector<int64_t>{1, -2, 3}));
    ASSERT_NE(c.metadata().texts("tokens"), nullptr);
    EXPECT_EQ((*c.metadata().texts("tokens"))[2], "\xff");
    ASSERT_EQ(c.names().size(), 2u);
    EXPECT_EQ(c.names()[0], "w");
    const TensorView* weight = c.find("w");
    ASSERT_NE(weight, nullptr);
    EXPECT_EQ(weight->shape_string(), "[3, 64]");  // slowest first
    EXPECT_EQ(weight->num_bytes, 3u * 2 * 18);
    EXPECT_EQ(weight->data[1], std::byte{7});
    EXPECT_EQ(c.find("absent"), nullptr);
    EXPECT_FALSE(c.sidecar("config.json").has_value());
    EXPECT_EQ(c.fingerprint().size(), 64u);
  }
}

TEST(Gguf, AcceptsScalarsEmptyTensorsAndMissingTailPadding) {
  GgufBuilder builder;
  builder.raw_tensor("empty", {0, 5}, 0, 0).raw_tensor("scalar", {}, 0, 0).data(4);
  const Bytes bytes = builder.build();
  const auto checkpoint = parse_gguf(bytes, "x.gguf");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->find("empty")->num_elements(), 0);
  EXPECT_EQ((*checkpoint)->find("scalar")->num_elements(), 1);
  EXPECT_EQ((*checkpoint)->find("scalar")->rank, 0);
}

TEST(Gguf, AcceptsAFileWithoutTensors) {
  const Bytes bytes = GgufBuilder().key("a", testing::kBool, uint8_t{1}).build();
  const auto checkpoint = parse_gguf(bytes, "x.gguf");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->metadata().boolean("a"), true);
}

TEST(Gguf, HonoursTheAlignmentKey) {
  GgufBuilder builder;
  builder.alignment(256).tensor("a", {3}, DType::kF32).tensor("b", {3}, DType::kF32);
  const Bytes bytes = builder.build();
  const auto checkpoint = parse_gguf(bytes, "x.gguf");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->find("b")->data - (*checkpoint)->find("a")->data, 256);
}

TEST(Gguf, FingerprintDependsOnHeaderAndSizeOnly) {
  Bytes bytes = GgufBuilder().tensor("a", {8}, DType::kF32).build();
  const std::string before = (*parse_gguf(bytes, "x"))->fingerprint();
  bytes.back() = std::byte{1};  // tensor data
  EXPECT_EQ((*parse_gguf(bytes, "y"))->fingerprint(), before);
  const Bytes renamed = GgufBuilder().tensor("b", {8}, DType::kF32).build();
  EXPECT_NE((*parse_gguf(renamed, "x"))->fingerprint(), before);
  bytes.push_back(std::byte{0});
  EXPECT_NE((*parse_gguf(bytes, "x"))->fingerprint(), before);
}

// ---- header ----

TEST(GgufHeader, RefusesShortFiles) {
  expect_corrupt({}, "the GGUF magic at byte 0 needs 4 bytes, the file has 0 left");
  const Bytes whole = header(3, 0, 0);
  expect_corrupt(Bytes(whole.begin(), whole.begin() + 6),
                 "the GGUF version at byte 4 needs 4 bytes, the file has 2 left");
  expect_corrupt(Bytes(whole.begin(), whole.begin() + 12),
                 "the tensor count at byte 8 needs 8 bytes, the file has 4 left");
  expect_corrupt(Bytes(whole.begin(), whole.begin() + 16),
                 "the key count at byte 16 needs 8 bytes, the file has 0 left");
  EXPECT_TRUE(parse_gguf(whole, "x").ok());
}

TEST(GgufHeader, RefusesAnotherMagic) {
  Bytes bytes = header(3, 0, 0);
  bytes[0] = std::byte{'g'};
  expect_corrupt(bytes,
                 "is no GGUF file: it starts with 0x46554767, needed is 0x46554747 ('GGUF')");
}

TEST(GgufHeader, RefusesOtherVersions) {
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    expect_unsupported(header(version, 0, 0),
                       fmt::format("has GGUF version {}, versions 2 and 3 are read", version));
  }
  expect_unsupported(header(0x03000000, 0, 0),
                     "is a big-endian GGUF file, only little-endian files are read");
}

TEST(GgufHeader, BoundsTheCountsByTheBytesLeft) {
  expect_corrupt(header(3, 0, uint64_t{1} << 63, 100),
                 "the key count at byte 16 is 9223372036854775808, at most 7 fit in the 100 bytes "
                 "left");
  expect_corrupt(header(3, UINT64_MAX, 0, 100),
                 "the tensor count at byte 8 is 18446744073709551615, at most 4 fit in the 100 "
                 "bytes left");
  expect_corrupt(header(3, 1, 7, 100),
                 "the tensor count at byte 8 is 1, at most 0 fit in the 9 bytes left");
  expect_corrupt(header(3, 0, 65'537, 13 * 65'537),
                 "the key count at byte 16 is 65537, at most 65536 fit in the 851981 bytes left");
  expect_corrupt(
      header(3, 65'537, 0, 24 * 65'537),
      "the tensor count at byte 8 is 65537, at most 65536 fit in the 1572888 bytes left");
}

// ---- keys ----

Bytes with_key(const ByteWriter& key_bytes) {
  ByteWriter file;
  file.raw("GGUF").put(uint32_t{3}).put(uint64_t{0}).put(uint64_t{1});
  file.raw({reinterpret_cast<const char*>(key_bytes.bytes().data()), key_bytes.size()});
  return file.bytes();
}

TEST(GgufKeys, RefusesBadNames) {
  expect_corrupt(with_key(ByteWriter().text("").put(uint32_t{4}).put(uint64_t{0})),
                 "the key at byte 24 has an empty name");
  expect_corrupt(with_key(ByteWriter().put(uint64_t{65'536}).zeros(70'000)),
                 "a key name at byte 24 is 65536 bytes long, at most 65535 are allowed");
  expect_corrupt(with_key(ByteWriter().put(uint64_t{1'000}).zeros(20)),
                 "a key name at byte 32 needs 1000 bytes, the file has 20 left");
  expect_corrupt(with_key(ByteWriter().put(UINT64_MAX).zeros(20)),
                 "a key name at byte 24 is 18446744073709551615 bytes long, at most 65535 are "
                 "allowed");
}

TEST(GgufKeys, RefusesDuplicates) {
  GgufBuilder builder;
  builder.key("a", testing::kU32, uint32_t{1}).key("a", testing::kU32, uint32_t{1});
  expect_corrupt(builder.build(), "key 'a' at byte 41 occurs twice");
}

TEST(GgufKeys, RefusesUnknownTypes) {
  expect_corrupt(with_key(ByteWriter().text("k").put(uint32_t{13}).put(uint64_t{0})),
                 "key 'k' has value type 13 at byte 33, types 0 to 12 exist");
}

TEST(GgufKeys, RefusesValuesBeyondTheFile) {
  expect_corrupt(with_key(ByteWriter().text("key").put(uint32_t{testing::kU64}).put(uint32_t{0})),
                 "key 'key' at byte 39 needs 8 bytes, the file has 4 left");
  const auto text = [] { return ByteWriter().text("k").put(uint32_t{testing::kString}); };
  expect_corrupt(with_key(text().put(uint64_t{5}).raw("1234")),
                 "key 'k' at byte 45 needs 5 bytes, the file has 4 left");
  expect_corrupt(with_key(text().put(uint64_t{1} << 63)),
                 "key 'k' at byte 37 is 9223372036854775808 bytes long, at most 16777216 are "
                 "allowed");
}

TEST(GgufKeys, RefusesBadArrays) {
  const auto array = [](uint32_t type, uint64_t count) {
    return ByteWriter().text("k").put(uint32_t{testing::kArray}).put(type).put(count);
  };
  expect_corrupt(with_key(array(testing::kArray, 1)),
                 "key 'k' is an array of value type 9 at byte 37, needed is a scalar or string");
  expect_corrupt(with_key(array(13, 1)),
                 "key 'k' is an array of value type 13 at byte 37, needed is a scalar or string");
  expect_corrupt(with_key(array(testing::kU8, uint64_t{1} << 63)),
                 "key 'k' is an array of 9223372036854775808 elements at byte 37, at most 0 fit in "
                 "the 0 bytes left and the limit of 4194304 per file");
  expect_corrupt(with_key(array(testing::kU32, 3).zeros(11)),
                 "key 'k' is an array of 3 elements at byte 37, at most 2 fit in the 11 bytes left "
                 "and the limit of 4194304 per file");
  expect_corrupt(with_key(array(testing::kU8, 4'194'305).zeros(4'194'305)),
                 "key 'k' is an array of 4194305 elements at byte 37, at most 4194304 fit in the "
                 "4194305 bytes left and the limit of 4194304 per file");
  expect_corrupt(with_key(array(testing::kString, 2).text("a").put(uint64_t{9})),
                 "key 'k' at byte 66 needs 9 bytes, the file has 0 left");
}

TEST(GgufKeys, RefusesBadAlignment) {
  for (const uint32_t alignment : {0u, 3u, 48u, 2u << 20}) {
    GgufBuilder builder;
    builder.key("general.alignment", testing::kU32, alignment);
    expect_corrupt(builder.build(),
                   fmt::format("key 'general.alignment' is {}, needed is a power of two up to "
                               "1048576",
                               alignment));
  }
  expect_corrupt(GgufBuilder().key("general.alignment", testing::kI32, int32_t{32}).build(),
                 "key 'general.alignment' has type i32, needed is u32");
}

// ---- tensor infos ----

TEST(GgufTensors, RefusesBadNames) {
  const auto named = [](std::string_view name) {
    return GgufBuilder().raw_tensor(name, {1}, 0, 0).data(32).build();
  };
  expect_corrupt(named(std::string(64, 'n')),
                 "a tensor name at byte 24 is 64 bytes long, at most 63 are allowed");
  expect_corrupt(named(""), "the tensor at byte 24 is named '', needed is a name without NUL");
  expect_corrupt(named(std::string_view("a\0b", 3)),
                 "the tensor at byte 24 is named 'a\\x00b', needed is a name without NUL");
  EXPECT_EQ(error_of(named(std::string(63, 'n'))).message, "accepted");
}

TEST(GgufTensors, RefusesDuplicates) {
  GgufBuilder builder;
  builder.tensor("a", {1}, DType::kF32).tensor("a", {1}, DType::kF32);
  expect_corrupt(builder.build(), "tensor 'a' occurs twice");
}

TEST(GgufTensors, RefusesBadShapes) {
  const auto shaped = [](const std::vector<uint64_t>& sizes, uint32_t type_id = 0) {
    return GgufBuilder().raw_tensor("t", sizes, type_id, 0).data(64).build();
  };
  expect_corrupt(shaped({1, 1, 1, 1, 1}),
                 "tensor 't' has 5 dimensions at byte 33, at most 4 are allowed");
  expect_corrupt(
      shaped({uint64_t{1} << 63}),
      "tensor 't' has dimension 0 of size 9223372036854775808 at byte 37, the product of "
      "all must fit 63 bits");
  expect_corrupt(shaped({(uint64_t{1} << 42) + 1, uint64_t{1} << 42}),
                 "tensor 't' has dimension 1 of size 4398046511104 at byte 45, the product of all "
                 "must fit 63 bits");
  expect_corrupt(
      shaped({0, uint64_t{1} << 62, uint64_t{1} << 62}),
      "tensor 't' has dimension 2 of size 4611686018427387904 at byte 53, the product of "
      "all must fit 63 bits");
  expect_corrupt(shaped({(uint64_t{1} << 42) + 1}),
                 "tensor 't' [4398046511105] of F32 is larger than the file of 128 bytes");
  expect_corrupt(shaped({uint64_t{1} << 62}),
                 "tensor 't' [4611686018427387904] of F32 is larger than the file of 128 bytes");
  expect_corrupt(shaped({33}, 2),
                 "tensor 't' has rows of 33 elements, Q4_0 needs a multiple of 32");
  expect_corrupt(shaped({}, 2), "tensor 't' has rows of 1 elements, Q4_0 needs a multiple of 32");
}

TEST(GgufTensors, NamesTypesThatCannotBeRead) {
  const auto typed = [](uint32_t type_id) {
    return GgufBuilder().raw_tensor("t", {256}, type_id, 0).data(64).build();
  };
  expect_unsupported(typed(4), "tensor 't' has type id 4 (Q4_2)");
  EXPECT_EQ(error_of(typed(33)).hint, "this type was removed from GGUF: convert the model again");
  expect_unsupported(typed(16), "tensor 't' has type id 16 (IQ2_XXS)");
  EXPECT_EQ(error_of(typed(16)).hint,
            "types that can be read: F32 F16 BF16 F64 I8 I16 I32 I64 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K "
            "Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4");
  expect_unsupported(typed(99), "tensor 't' has type id 99");
  expect_unsupported(typed(0xFFFFFFFF), "tensor 't' has type id 4294967295");
}

TEST(GgufTensors, RefusesRangesOutsideTheData) {
  const auto at = [](uint64_t offset) {
    return GgufBuilder().raw_tensor("t", {16}, 0, offset).data(64).build();
  };
  EXPECT_EQ(error_of(at(0)).message, "accepted");
  expect_corrupt(at(4), "tensor 't' has offset 4, needed is a multiple of the alignment 32");
  expect_corrupt(at(32),
                 "tensor 't' needs 64 bytes at offset 32, the data section at byte 64 has 64");
  expect_corrupt(at(UINT64_MAX - 31),
                 "tensor 't' needs 64 bytes at offset 18446744073709551584, the data section at "
                 "byte 64 has 64");
  Bytes truncated = at(0);
  truncated.pop_back();
  expect_corrupt(truncated,
                 "tensor 't' needs 64 bytes at offset 0, the data section at byte 64 has 63");
  EXPECT_EQ(error_of(truncated).hint, "the file is probably truncated: fetch it again");
}

TEST(GgufTensors, RefusesOverlaps) {
  GgufBuilder builder;
  builder.raw_tensor("a", {9}, 0, 32).raw_tensor("b", {16}, 0, 0).data(96);
  expect_corrupt(builder.build(), "tensors 'b' (offset 0, 64 bytes) and 'a' (offset 32) overlap");
  GgufBuilder same;
  same.raw_tensor("a", {1}, 0, 0).raw_tensor("b", {1}, 0, 0).data(32);
  EXPECT_NE(error_of(same.build()).message.find("overlap"), std::string::npos);
}

TEST(GgufTensors, RefusesTruncatedInfosAtEveryLength) {
  GgufBuilder builder;
  builder.text_key("general.architecture", "llama").texts_key("tokens", {"a", "b"});
  builder.tensor("w", {32, 2}, DType::kQ8_0).tensor("b", {2}, DType::kF32);
  const Bytes whole = builder.build();
  ASSERT_EQ(error_of(whole).message, "accepted");
  const size_t needed = whole.size() - 24;  // the tail padding of "b" may be missing
  for (size_t size = 0; size < needed; ++size) {
    EXPECT_EQ(error_of(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size))).code,
              ErrorCode::kCorrupt)
        << size;
  }
}

// ---- split files ----

class GgufSplitTest : public ::testing::Test {
 protected:
  std::string path(int part, int count = 3) const {
    return (folder_ / fmt::format("m-{:05d}-of-{:05d}.gguf", part, count)).string();
  }
  void write(int part, const std::string& tensor, int stated_part, int count = 3,
             int total = 3) const {
    GgufBuilder builder;
    if (part == 1) builder.text_key("general.architecture", "llama");
    builder.key("split.no", testing::kU16, static_cast<uint16_t>(stated_part));
    builder.key("split.count", testing::kU16, static_cast<uint16_t>(count));
    builder.key("split.tensors.count", testing::kI32, int32_t{total});
    builder.tensor(tensor, {4}, DType::kF32);
    testing::write_file(path(part), builder.build());
  }
  std::string error_of_opening(const std::string& opened) const {
    const auto checkpoint = Checkpoint::open(opened);
    return checkpoint.ok() ? "accepted" : checkpoint.error().message;
  }
  void write_all() const {
    write(1, "a", 0);
    write(2, "b", 1);
    write(3, "c", 2);
  }

  const testing::TempFolder own_;
  const std::filesystem::path folder_ = own_.path();
};

TEST_F(GgufSplitTest, OpensAllPartsByTheFirst) {
  write_all();
  const auto checkpoint = Checkpoint::open(path(1));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->names().size(), 3u);
  EXPECT_NE((*checkpoint)->find("c"), nullptr);
  EXPECT_EQ((*checkpoint)->metadata().text("general.architecture"), "llama");
  EXPECT_EQ((*checkpoint)->file_bytes(), std::filesystem::file_size(path(1)) +
                                             std::filesystem::file_size(path(2)) +
                                             std::filesystem::file_size(path(3)));
  (*checkpoint)->release_pages();
  EXPECT_EQ((*checkpoint)->find("c")->data[1], std::byte{7});
  (*checkpoint)->release_tensor(*(*checkpoint)->find("c"));
  EXPECT_EQ((*checkpoint)->find("c")->data[1], std::byte{7});
}

TEST_F(GgufSplitTest, SaysWhichPartToOpen) {
  write_all();
  EXPECT_EQ(error_of_opening(path(2)),
            fmt::format("{}: is part 2 of 3 of a split model, open the first part: '{}'", path(2),
                        path(1)));
}

TEST_F(GgufSplitTest, NamesTheMissingPart) {
  write_all();
  std::filesystem::remove(path(3));
  EXPECT_EQ(error_of_opening(path(1)),
            fmt::format("part 3 of 3 of the model is missing: cannot open '{}': No such file or "
                        "directory",
                        path(3)));
}

TEST_F(GgufSplitTest, NeedsTheNamesOfSplitFiles) {
  write_all();
  const std::string renamed = (folder_ / "model.gguf").string();
  std::filesystem::rename(path(1), renamed);
  EXPECT_EQ(error_of_opening(renamed),
            fmt::format("{}: is the first of 3 parts and must be named PREFIX-00001-of-00003.gguf "
                        "so that the others can be found",
                        renamed));
}

TEST_F(GgufSplitTest, RefusesPartsThatDisagree) {
  write_all();
  write(2, "b", 2);
  EXPECT_EQ(error_of_opening(path(1)), path(2) + ": key 'split.no' is 2, needed is 1");
  write(2, "b", 1, 4);
  EXPECT_EQ(error_of_opening(path(1)), path(2) + ": key 'split.count' is 4, the first part says 3");
  write(2, "a", 1);
  EXPECT_EQ(error_of_opening(path(1)), path(2) + ": tensor 'a' occurs twice");
  write_all();
  write(1, "a", 0, 3, 4);
  EXPECT_EQ(error_of_opening(path(1)),
            path(1) + ": key 'split.tensors.count' is 4, the 3 parts hold 3 tensors");
}

TEST_F(GgufSplitTest, RefusesBadCounts) {
  GgufBuilder builder;
  builder.text_key("split.count", "three");
  EXPECT_EQ(error_of(builder.build()).message,
            "x.gguf: key 'split.count' is no integer from 0 to 65535");
  GgufBuilder part;
  part.key("split.count", testing::kU16, uint16_t{2}).key("split.no", testing::kU16, uint16_t{0});
  EXPECT_EQ(error_of(part.build()).message,
            "x.gguf: is one of 2 parts of a split model, which cannot be read alone");
}

}  // namespace gguf_test
}  // namespace headrace
