#include "checkpoint/hub/file_kind.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"
#include "checkpoint/testing/file_builders.h"

namespace headrace::hub {
namespace file_kind_test {

using headrace::testing::TempFolder;
namespace testing = headrace::testing;

std::string words(std::initializer_list<char> bytes) { return {bytes.begin(), bytes.end()}; }

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string whole_gguf() {
  return text_of(testing::GgufBuilder().tensor("w", {32}, DType::kF32).build());
}

std::string whole_safetensors() {
  const std::string header = "{" + testing::safetensors_entry("w", "F32", "[2]", 0, 8) + "}";
  return text_of(testing::safetensors_file(header, 8));
}

struct Sample {
  std::string name, contents;
};

TEST(FileKind, FilesThatAreWhatTheirNamesSay) {
  const std::string gguf = whole_gguf(), safetensors = whole_safetensors();
  const TempFolder folder;
  for (const Sample& sample : std::initializer_list<Sample>{
           {"a.gguf", gguf},
           {"a.gguf", words({'G', 'G', 'U', 'F', 1, 0, 0, 0, 9})},  // of a version not read here
           {"a.safetensors", "\2" + std::string(7, 0) + "{}"},
           {"a.safetensors", safetensors},
           {"config.json", "{}"},
           {"config.json", " \r\n\t[1]"},
           {"config.json", "\xEF\xBB\xBF{\"a\": 1}"},
           {"config.json", "{ broken"},  // its reader says more
           {"template.jinja", "{{ messages }}"},
           {"tokenizer.model", words({10, 0, 1})},
           {"merges.txt", ""},
           {"notes.txt", "about <html>"},
       }) {
    const Status status = check_file_kind(folder.write("file", sample.contents), sample.name, "");
    EXPECT_TRUE(status.ok()) << sample.name << ": " << status.error().message;
  }
}

TEST(FileKind, FilesThatAreSomethingElse) {
  const std::string gguf = whole_gguf(), safetensors = whole_safetensors();
  const TempFolder folder;
  for (const Sample& sample : std::initializer_list<Sample>{
           {"a.gguf", ""},
           {"a.gguf", "GGUF"},
           {"a.gguf", gguf.substr(0, gguf.size() - 1)},
           {"a.gguf", gguf.substr(0, 40)},
           {"a.safetensors", safetensors.substr(0, safetensors.size() - 1)},
           {"a.safetensors", safetensors + "more"},
           {"a.gguf", words({'G', 'G', 'U', 'F', 0, 0, 0, 0})},
           {"a.gguf", words({'G', 'G', 'U', 'F', 0, 0, 0, 3})},  // of the other byte order
           {"a.gguf", "<!DOCTYPE html>"},
           {"a.safetensors", ""},
           {"a.safetensors", words({2, 0, 0, 0, 0, 0, 0, 0})},
           {"a.safetensors", words({9, 0, 0, 0, 0, 0, 0, 0}) + "{}"},
           {"a.safetensors", words({2, 0, 0, 0, 0, 0, 0, 0}) + "[]"},
           {"a.safetensors", words({2, 0, 0, 0, 0, 0, 0, 1}) + "{}"},
           {"config.json", ""},
           {"config.json", "<html>"},
           {"config.json", "not found"},
           {"template.jinja", "<!doctype HTML><title>Log in</title>"},
           {"template.jinja", " \n<HTML lang=en>"},
       }) {
    const Status status = check_file_kind(folder.write("file", sample.contents), sample.name, "");
    ASSERT_FALSE(status.ok()) << sample.name << ": " << sample.contents;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  }
}

TEST(FileKind, TheErrorShowsWhatCame) {
  const TempFolder folder;
  const std::string page = "<html><body>\nPlease log in first to accept the terms of this model";
  const std::string path = folder.write("file", page);
  const Error error = check_file_kind(path, "m.gguf", "text/html").error();
  EXPECT_EQ(error.message,
            "'m.gguf' is not a GGUF file: 66 bytes came as text/html that begin with "
            "'<html><body>\\x0aPlease log in first to accept the t'");
  EXPECT_EQ(error.hint,
            "nothing was kept; check the address: it must be that of the file itself, and pages "
            "that ask for a login or consent are sent in place of files");
  const Error short_one = check_file_kind(folder.write("file", "no"), "c.json", "").error();
  EXPECT_EQ(short_one.message, "'c.json' is not a JSON file: 2 bytes came that begin with 'no'");
}

TEST(FileKind, AShortFileIsSaidToBeShort) {
  const TempFolder folder;
  const std::string path = folder.write("file", whole_gguf().substr(0, 150));
  const Error error = check_file_kind(path, "m.gguf", "").error();
  EXPECT_EQ(error.message,
            "m.gguf: tensor 'w' needs 128 bytes at offset 0, the data section at byte 64 has 86");
  EXPECT_EQ(error.hint,
            "nothing was kept; pull it again: if the same comes, the server's file is cut short or "
            "broken");
}

TEST(FileKind, AFileThatCannotBeOpenedIsTheSystemsReason) {
  const TempFolder folder;
  const Error error = check_file_kind(folder.file("none"), "m.gguf", "").error();
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_EQ(error.message, "cannot open '" + folder.file("none") + "': No such file or directory");
}

}  // namespace file_kind_test
}  // namespace headrace::hub
