#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/temp_folder.h"
#include "checkpoint/testing/file_builders.h"

namespace headrace {
namespace safetensors_test {

namespace fs = std::filesystem;
using testing::safetensors_entry;
using testing::safetensors_file;
using Bytes = std::vector<std::byte>;

Error error_of(const Bytes& bytes) {
  const auto parsed = parse_safetensors(bytes, "x");
  if (parsed.ok()) return Error{ErrorCode::kInternal, "accepted", {}, {}};
  return parsed.error();
}

void expect_corrupt(const Bytes& bytes, const std::string& message) {
  const Error error = error_of(bytes);
  EXPECT_EQ(error.message, "x: " + message);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
}

void expect_unsupported(const Bytes& bytes, const std::string& message) {
  const Error error = error_of(bytes);
  EXPECT_EQ(error.message, "x: " + message);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
}

Bytes one_entry(const std::string& entry, size_t num_data_bytes) {
  return safetensors_file(fmt::format("{{{}}}", entry), num_data_bytes);
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string header = R"({"__metadata__":{"format":"pt","n\u00e9":"\"x\""},)" +
                             safetensors_entry("b", "BF16", "[2, 3]", 4, 16) + "," +
                             safetensors_entry("a\\n", "F32", "[]", 0, 4) + "," +
                             safetensors_entry("empty", "F8_E4M3", "[0,7]", 16, 16) + "}   ";
  const Bytes bytes = safetensors_file(header, 16);
  const auto checkpoint = parse_safetensors(bytes, "x");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Checkpoint& c = **checkpoint;
  EXPECT_EQ(c.kind(), CheckpointKind::kSafetensors);
  ASSERT_EQ(c.names().size(), 3u);
  EXPECT_EQ(c.names()[0], "b");
  EXPECT_EQ(c.names()[1], "a\n");
  EXPECT_EQ(c.find("b")->shape_string(), "[2, 3]");
  EXPECT_EQ(c.find("b")->dtype, DType::kBF16);
  EXPECT_EQ(c.find("b")->data[0], std::byte{28});
  EXPECT_EQ(c.find("a\n")->num_elements(), 1);
  EXPECT_EQ(c.find("empty")->num_elements(), 0);
  EXPECT_EQ(c.metadata().text("format"), "pt");
  EXPECT_EQ(c.metadata().text("n\xc3\xa9"), "\"x\"");
}

TEST(Safetensors, AcceptsNoTensors) {
  EXPECT_EQ(error_of(safetensors_file("{}", 0)).message, "accepted");
}

TEST(SafetensorsHeader, RefusesBadLengths) {
  expect_corrupt({}, "the header length at byte 0 needs 8 bytes, the file has 0 left");
  Bytes bytes = safetensors_file("{}", 0);
  bytes[0] = std::byte{3};
  expect_corrupt(bytes, "the header at byte 8 needs 3 bytes, the file has 2 left");
  for (size_t i = 0; i < 8; ++i) bytes[i] = std::byte{0xFF};
  expect_corrupt(bytes,
                 "the header length at byte 0 is 18446744073709551615, at most 26214400 are "
                 "allowed");
  expect_corrupt(safetensors_file("", 8),
                 "the header is not valid JSON: incomplete JSON at byte 8");
}

TEST(SafetensorsHeader, RefusesWhatIsNoJson) {
  expect_corrupt(safetensors_file("{} x", 0),
                 "the header is not valid JSON: extra data at byte 11");
  expect_corrupt(safetensors_file("[]", 0), "the header is an array, needed is an object");
  expect_corrupt(safetensors_file("7", 0), "the header is a number, needed is an object");
  EXPECT_EQ(error_of(safetensors_file(std::string(100'000, '['), 0)).code, ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(safetensors_file(R"({"a":)" + std::string(100'000, '{'), 0)).code,
            ErrorCode::kCorrupt);
}

TEST(SafetensorsHeader, RefusesDuplicates) {
  const std::string entry = safetensors_entry("t", "F32", "[1]", 0, 4);
  expect_corrupt(one_entry(entry + "," + entry, 4), "tensor 't' occurs twice");
  expect_corrupt(safetensors_file(R"({"__metadata__":{"a":"1","a":"1"}})", 0),
                 "__metadata__ key 'a' occurs twice");
  expect_corrupt(safetensors_file(R"({"__metadata__":{},"__metadata__":{}})", 0),
                 "__metadata__ occurs twice");
  expect_corrupt(one_entry(R"("t":{"dtype":"F32","dtype":"F32"})", 4),
                 "tensor 't' has field 'dtype' twice");
}

TEST(SafetensorsHeader, RefusesMissingAndUnknownFields) {
  expect_corrupt(one_entry(R"("t":{})", 0), "tensor 't' has no field 'dtype'");
  expect_corrupt(one_entry(R"("t":{"dtype":"F32"})", 0), "tensor 't' has no field 'shape'");
  expect_corrupt(one_entry(R"("t":{"dtype":"F32","shape":[1]})", 0),
                 "tensor 't' has no field 'data_offsets'");
  expect_unsupported(one_entry(R"("t":{"stride":[1]})", 0),
                     "tensor 't' has the unknown field 'stride'");
}

TEST(SafetensorsHeader, RefusesWrongTypes) {
  const std::string whole_numbers = "needed is an array of whole numbers from 0";
  expect_corrupt(one_entry(R"("t":3)", 0), "tensor 't' is a number, needed is an object");
  expect_corrupt(one_entry(R"("t":"x")", 0), "tensor 't' is a string, needed is an object");
  expect_corrupt(one_entry(R"("t":{"dtype":5})", 0),
                 "tensor 't' has a number in field 'dtype', needed is a string");
  expect_corrupt(one_entry(R"("t":{"dtype":null})", 0),
                 "tensor 't' has null in field 'dtype', needed is a string");
  expect_corrupt(one_entry(R"("t":{"shape":true})", 0),
                 "tensor 't' has a boolean in field 'shape', " + whole_numbers);
  expect_corrupt(one_entry(R"("t":{"shape":{}})", 0),
                 "tensor 't' has an object in field 'shape', " + whole_numbers);
  expect_corrupt(one_entry(R"("t":{"shape":[[1]]})", 0),
                 "tensor 't' has an array in field 'shape', " + whole_numbers);
  expect_corrupt(one_entry(R"("t":{"shape":[-1]})", 0),
                 "tensor 't' has a negative number in field 'shape', " + whole_numbers);
  expect_corrupt(
      one_entry(R"("t":{"shape":[1.5]})", 0),
      "tensor 't' has a fraction or a number above 64 bits in field 'shape', " + whole_numbers);
  expect_corrupt(one_entry(R"("t":{"shape":["1"]})", 0),
                 "tensor 't' has a string in field 'shape', " + whole_numbers);
  expect_corrupt(safetensors_file(R"({"__metadata__":{"a":1}})", 0),
                 "__metadata__ key 'a' is a number, needed is a string");
  expect_corrupt(safetensors_file(R"({"__metadata__":{"a":{}}})", 0),
                 "__metadata__ key 'a' is an object, needed is a string");
}

TEST(SafetensorsHeader, RefusesBadOffsetCounts) {
  for (const int count : {0, 1, 3}) {
    std::string offsets;
    for (int i = 0; i < count; ++i) {
      if (i > 0) offsets += ',';
      offsets += '0';
    }
    expect_corrupt(
        one_entry(R"("t":{"dtype":"U8","shape":[0],"data_offsets":[)" + offsets + "]}", 0),
        fmt::format("tensor 't' has {} data_offsets, needed are 2", count));
  }
}

TEST(SafetensorsHeader, NamesUnknownDtypesAndRanks) {
  expect_unsupported(one_entry(safetensors_entry("t", "C64", "[1]", 0, 8), 8),
                     "tensor 't' has dtype 'C64', known are F32 F16 BF16 F64 F8_E4M3 F8_E5M2 "
                     "F8_E8M0 I8 I16 I32 I64 U8 U16 U32 U64 BOOL");
  EXPECT_EQ(error_of(one_entry(safetensors_entry("t", "U8", "[1,1,1,1,1,1,1,1]", 0, 1), 1)).message,
            "accepted");
  expect_unsupported(one_entry(safetensors_entry("t", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1), 1),
                     "tensor 't' has more than 8 dimensions");
}

TEST(SafetensorsHeader, BoundsTheNumberOfTensors) {
  std::string header = "{";
  for (int i = 0; i <= 98'304; ++i) {
    if (i > 0) header += ',';
    header += safetensors_entry(fmt::format("t{}", i), "U8", "[0]", 0, 0);
  }
  expect_unsupported(safetensors_file(header + '}', 0), "has more than 98304 tensors");
}

TEST(SafetensorsHeader, BoundsTheMetadata) {
  std::string header = R"({"__metadata__":{)";
  for (int i = 0; i <= 4'096; ++i) {
    if (i > 0) header += ',';
    header += fmt::format(R"("k{}":"")", i);
  }
  expect_unsupported(safetensors_file(header + "}}", 0), "has more than 4096 __metadata__ keys");
}

TEST(SafetensorsRanges, MustFitTheData) {
  expect_corrupt(one_entry(safetensors_entry("t", "F32", "[2]", 0, 8), 7),
                 "tensor 't' has data_offsets [0, 8], the data section has 7 bytes");
  expect_corrupt(one_entry(safetensors_entry("t", "F32", "[2]", 8, 0), 8),
                 "tensor 't' has data_offsets [8, 0], the data section has 8 bytes");
  expect_corrupt(one_entry(safetensors_entry("t", "F32", "[2]", 0, SIZE_MAX), 8),
                 "tensor 't' has data_offsets [0, 18446744073709551615], the data section has 8 "
                 "bytes");
}

TEST(SafetensorsRanges, MustHoldExactlyTheShape) {
  expect_corrupt(one_entry(safetensors_entry("t", "F32", "[3]", 0, 8), 8),
                 "tensor 't' [3] of F32 needs 12 bytes, its data_offsets [0, 8] hold 8");
  expect_corrupt(one_entry(safetensors_entry("t", "F16", "[4294967296,4294967296]", 0, 8), 8),
                 "tensor 't' has a shape whose product does not fit 63 bits");
  expect_corrupt(one_entry(safetensors_entry("t", "F16", "[0,18446744073709551615]", 0, 0), 0),
                 "tensor 't' has a shape whose product does not fit 63 bits");
}

TEST(SafetensorsRanges, MustCoverTheDataOnce) {
  const auto two = [](size_t begin, size_t end, size_t num_data_bytes) {
    return one_entry(safetensors_entry("a", "U8", "[4]", 0, 4) + "," +
                         safetensors_entry("b", "U8", fmt::format("[{}]", end - begin), begin, end),
                     num_data_bytes);
  };
  EXPECT_EQ(error_of(two(4, 8, 8)).message, "accepted");
  const std::string rule = "tensors must neither overlap nor leave gaps";
  expect_corrupt(two(5, 8, 8),
                 "tensor 'b' begins at 5 where the tensor before it ends at 4: " + rule);
  expect_corrupt(two(3, 8, 8),
                 "tensor 'b' begins at 3 where the tensor before it ends at 4: " + rule);
  expect_corrupt(two(0, 4, 8),
                 "tensor 'b' begins at 0 where the tensor before it ends at 4: " + rule);
  expect_corrupt(two(4, 8, 9), "the data section has 9 bytes, its tensors cover 8");
  expect_corrupt(one_entry(safetensors_entry("a", "U8", "[4]", 1, 5), 5),
                 "tensor 'a' begins at 1 where the tensor before it ends at 0: " + rule);
}

// ---- folders, shards and indexes ----

class SafetensorsFolderTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write_text(const std::string& name, const std::string& text) const {
    testing::write_file(path(name), std::as_bytes(std::span(text)));
  }
  void write_tensor(const std::string& file, const std::string& tensor) const {
    testing::write_file(path(file), one_entry(safetensors_entry(tensor, "U8", "[4]", 0, 4), 4));
  }
  void write_index(const std::string& weight_map) const {
    write_text("model.safetensors.index.json",
               R"({"metadata":{},"weight_map":)" + weight_map + "}");
  }
  void write_shards() const {
    write_tensor("model-00001-of-00002.safetensors", "a");
    write_tensor("model-00002-of-00002.safetensors", "b");
    write_index(R"({"a":"model-00001-of-00002.safetensors",)"
                R"("b":"model-00002-of-00002.safetensors"})");
  }
  std::string error_of_opening(const std::string& opened) const {
    const auto checkpoint = Checkpoint::open(opened);
    return checkpoint.ok() ? "accepted" : checkpoint.error().message;
  }

  const testing::TempFolder own_;
  const fs::path folder_ = own_.path();
};

TEST_F(SafetensorsFolderTest, OpensAFolderAndReadsFilesBesideIt) {
  write_tensor("model.safetensors", "a");
  write_text("config.json", R"({"x":1})");
  for (const std::string& opened : {folder_.string(), path("model.safetensors")}) {
    const auto checkpoint = Checkpoint::open(opened);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->path(), opened);
    EXPECT_NE((*checkpoint)->find("a"), nullptr);
    EXPECT_EQ((*checkpoint)->sidecar("config.json"), R"({"x":1})");
    EXPECT_EQ((*checkpoint)->sidecar("tokenizer.json"), std::nullopt);
    EXPECT_EQ((*checkpoint)->sidecar("../" + folder_.filename().string() + "/config.json"),
              std::nullopt);
    EXPECT_EQ((*checkpoint)->sidecar(""), std::nullopt);
  }
}

TEST_F(SafetensorsFolderTest, ReadsFilesInAFolderBesideItAndNoDeeper) {
  write_tensor("model.safetensors", "a");
  fs::create_directories(folder_ / "1_Pooling" / "deeper");
  write_text("1_Pooling/config.json", "pooling");
  write_text("1_Pooling/deeper/config.json", "hidden");
  const auto checkpoint = Checkpoint::open(folder_.string()).value();
  EXPECT_EQ(checkpoint->sidecar("1_Pooling/config.json"), "pooling");
  for (const char* name :
       {"1_Pooling/deeper/config.json", "1_Pooling/", "/config.json", "1_Pooling",
        "../1_Pooling/config.json", "1_Pooling/..", "./config.json"}) {
    EXPECT_EQ(checkpoint->sidecar(name), std::nullopt) << name;
  }
}

TEST_F(SafetensorsFolderTest, OpensShardsByFolderIndexOrAnyShard) {
  write_shards();
  for (const std::string& opened : {folder_.string(), path("model.safetensors.index.json"),
                                    path("model-00002-of-00002.safetensors")}) {
    const auto checkpoint = Checkpoint::open(opened);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->names().size(), 2u) << opened;
  }
}

TEST_F(SafetensorsFolderTest, RefusesIndexesThatLeaveTheFolder) {
  for (const std::string name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..",
                                 "", "x.bin", "a\\\\b.safetensors", "a\\u0000.safetensors"}) {
    write_index(R"({"t":")" + name + R"("})");
    EXPECT_NE(error_of_opening(folder_.string())
                  .find("needed is the name of a .safetensors file in the same folder"),
              std::string::npos)
        << name;
  }
  write_index(R"({"t":5})");
  EXPECT_EQ(
      error_of_opening(folder_.string()),
      path("model.safetensors.index.json") +
          ": tensor 't' is said to be in no string, needed is the name of a .safetensors file "
          "in the same folder");
}

TEST_F(SafetensorsFolderTest, RefusesIndexesThatDoNotMatchTheFiles) {
  const std::string index = path("model.safetensors.index.json");
  write_shards();
  write_index(R"({"a":"model-00001-of-00002.safetensors",)"
              R"("c":"model-00002-of-00002.safetensors"})");
  EXPECT_EQ(error_of_opening(folder_.string()),
            index +
                ": tensor 'c' is said to be in 'model-00002-of-00002.safetensors', which does "
                "not hold it");
  write_shards();
  write_tensor("model-00002-of-00002.safetensors", "a");
  EXPECT_EQ(error_of_opening(folder_.string()),
            path("model-00002-of-00002.safetensors") +
                ": tensor 'a' is in another file of this checkpoint too");
  fs::remove(path("model-00002-of-00002.safetensors"));
  EXPECT_EQ(
      error_of_opening(folder_.string()),
      "cannot open '" + path("model-00002-of-00002.safetensors") + "': No such file or directory");
  write_text("model.safetensors.index.json", "{}");
  EXPECT_EQ(error_of_opening(folder_.string()), index + ": has no object 'weight_map'");
  write_text("model.safetensors.index.json", "{");
  EXPECT_EQ(error_of_opening(folder_.string()),
            index + " is not valid JSON: incomplete JSON at byte 1");
}

TEST_F(SafetensorsFolderTest, SaysWhatAFolderLacks) {
  EXPECT_EQ(error_of_opening(folder_.string()),
            folder_.string() + ": the folder holds no .safetensors file");
  write_text("pytorch_model.bin", "x");
  EXPECT_EQ(Checkpoint::open(folder_.string()).error().hint,
            "pickled weights can run code and are not read: get the model as safetensors");
  write_text("m.gguf", "x");
  EXPECT_EQ(Checkpoint::open(folder_.string()).error().hint,
            "open the GGUF file itself: '" + path("m.gguf") + "'");
  write_tensor("one.safetensors", "a");
  EXPECT_EQ(error_of_opening(folder_.string()), "accepted");
  write_tensor("two.safetensors", "b");
  EXPECT_EQ(error_of_opening(folder_.string()),
            folder_.string() +
                ": the folder holds 2 .safetensors files and no index "
                "(model.safetensors.index.json), open one of them");
}

TEST_F(SafetensorsFolderTest, RecognisesFilesByContent) {
  write_tensor("weights", "a");
  EXPECT_EQ(error_of_opening(path("weights")), "accepted");
  testing::write_file(path("model"), testing::GgufBuilder().build());
  EXPECT_EQ(error_of_opening(path("model")), "accepted");
  write_text("text", "hello, world");
  EXPECT_EQ(
      error_of_opening(path("text")),
      path("text") + ": is neither a GGUF nor a safetensors file, nor a folder with safetensors");
  EXPECT_EQ(Checkpoint::open(path("absent")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Checkpoint::open("").error().code, ErrorCode::kNotFound);
}

}  // namespace safetensors_test
}  // namespace headrace
