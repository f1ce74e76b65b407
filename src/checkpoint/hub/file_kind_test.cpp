#include "checkpoint/hub/file_kind.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"

namespace headrace::hub {
namespace file_kind_test {

using headrace::testing::TempFolder;

std::string words(std::initializer_list<char> bytes) { return {bytes.begin(), bytes.end()}; }

struct Sample {
  std::string name, contents;
};

TEST(FileKind, FilesThatAreWhatTheirNamesSay) {
  const std::string safetensors = words({2, 0, 0, 0, 0, 0, 0, 0}) + "{}";
  const TempFolder folder;
  for (const Sample& sample : std::initializer_list<Sample>{
           {"a.gguf", words({'G', 'G', 'U', 'F', 3, 0, 0, 0})},
           {"a.gguf", words({'G', 'G', 'U', 'F', 1, 0, 0, 0, 9})},
           {"a.safetensors", safetensors},
           {"a.safetensors", safetensors + "weights"},
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
  const TempFolder folder;
  for (const Sample& sample : std::initializer_list<Sample>{
           {"a.gguf", ""},
           {"a.gguf", "GGUF"},
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

TEST(FileKind, AFileThatCannotBeOpenedIsTheSystemsReason) {
  const TempFolder folder;
  const Error error = check_file_kind(folder.file("none"), "m.gguf", "").error();
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_EQ(error.message, "cannot open '" + folder.file("none") + "': No such file or directory");
}

}  // namespace file_kind_test
}  // namespace headrace::hub
