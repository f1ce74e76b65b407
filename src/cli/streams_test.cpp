// Standard streams of a command: text that is piped in, lines of a pipe, output that is lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "cli/input.h"
#include "cli/line_reader.h"
#include "cli/message_reader.h"
#include "cli/output.h"
#include "cli/readable.h"
#include "cli/secrets.h"

namespace headrace {
namespace cli_streams_test {

// A file or pipe in place of standard input, as long as it lives.
class StandardInput {
 public:
  explicit StandardInput(const std::string& text) : before_(::dup(STDIN_FILENO)) {
    FILE* file = std::tmpfile();
    std::fwrite(text.data(), 1, text.size(), file);
    std::fflush(file);
    ::lseek(fileno(file), 0, SEEK_SET);
    ::dup2(fileno(file), STDIN_FILENO);
    std::fclose(file);
  }
  explicit StandardInput(int descriptor) : before_(::dup(STDIN_FILENO)) {
    ::dup2(descriptor, STDIN_FILENO);
  }
  ~StandardInput() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  int before_;
};

std::string input_of(const std::string& text) {
  const StandardInput input(text);
  return read_input(true).value();
}

TEST(Input, IsReadToItsEndWithoutTheLastNewline) {
  EXPECT_EQ(input_of(""), "");
  EXPECT_EQ(input_of("a\nb\n"), "a\nb");
  EXPECT_EQ(input_of("a\n\n"), "a\n");
  EXPECT_EQ(input_of("\n"), "");
  EXPECT_EQ(input_of(std::string("a\0b", 3)), std::string("a\0b", 3));
  const std::string large(200'000, 'x');
  EXPECT_EQ(input_of(large), large);
}

TEST(Input, OfMoreThanAnyContextHoldsIsRefused) {
  const int zeros = ::open("/dev/zero", O_RDONLY);
  const StandardInput input(zeros);
  ::close(zeros);
  const auto text = read_input(true);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(text.error().message,
            "standard input has more than 64 MiB of text, more than any context holds");
}

TEST(Input, ThatCannotBeReadSaysWhy) {
  const int folder = ::open("/", O_RDONLY);
  const StandardInput input(folder);
  ::close(folder);
  EXPECT_EQ(read_input(true).error().message, "cannot read standard input: Is a directory");
}

TEST(Input, WordsComeFirstAndPipedTextAfterAnEmptyLine) {
  struct Case {
    std::vector<std::string> words;
    std::string piped, text;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{"Sum", "this:"}, "1 2\n", "Sum this:\n\n1 2"},
           {{"Sum this:"}, "", "Sum this:"},
           {{}, "piped", "piped"},
           {{"-"}, "piped", "piped"},
           {{"a", "-", "b"}, "piped", "a b\n\npiped"},
           {{}, "", ""},
       }) {
    const StandardInput input(c.piped);
    EXPECT_EQ(text_of_words_and_input(c.words, true).value(), c.text);
  }
}

TEST(LineReader, GivesTheLinesOfAPipeAndThenItsEnd) {
  const StandardInput input("one\n\ntwo\r\nlast");
  LineReader reader(-1);
  EXPECT_FALSE(reader.is_interactive());
  for (const std::string_view line : {"one", "", "two\r", "last"}) {
    const ReadLine read = reader.read(">>> ");
    EXPECT_EQ(read.end, ReadEnd::kLine);
    EXPECT_EQ(read.text, line);
  }
  EXPECT_EQ(reader.read("").end, ReadEnd::kEndOfInput);
  EXPECT_EQ(reader.read("").end, ReadEnd::kEndOfInput);
}

TEST(LineReader, AnInterruptionEndsAWait) {
  int silent[2], interrupt[2];
  ASSERT_EQ(::pipe(silent), 0);
  ASSERT_EQ(::pipe(interrupt), 0);
  ASSERT_EQ(::write(interrupt[1], "x", 1), 1);
  {
    const StandardInput input(silent[0]);
    LineReader reader(interrupt[0]);
    EXPECT_EQ(reader.read("").end, ReadEnd::kInterrupted);
  }
  for (const int end : {silent[0], silent[1], interrupt[0], interrupt[1]}) ::close(end);
}

TEST(LineReader, BlocksBetweenTripleQuotesAreOneMessage) {
  const StandardInput input("\"\"\"a\nb\"\"\" \n\"\"\"\nc\n\n\"\"\"\nplain\n\"\"\"cut\noff");
  LineReader lines(-1);
  MessageReader messages([&](const std::string& prompt) { return lines.read(prompt); });
  EXPECT_EQ(messages.read().text, "a\nb");
  EXPECT_EQ(messages.read().text, "c\n");
  EXPECT_EQ(messages.read().text, "plain");
  EXPECT_EQ(messages.read().text, "cut\noff");
  EXPECT_EQ(messages.read().end, ReadEnd::kEndOfInput);
}

// Writes to standard output behind `descriptor`, in a child, and ends with 0 if finish_output()
// says `message`.
[[noreturn]] void expect_lost(int descriptor, const std::string& message) {
  ::dup2(descriptor, STDOUT_FILENO);
  std::signal(SIGPIPE, SIG_IGN);
  prepare_standard_streams();
  const bool written = write_output("an answer");
  const Status status = finish_output();
  std::_Exit(!written && !status.ok() && status.error().message == message ? 0 : 1);
}

TEST(OutputDeathTest, WhatIsLostIsSaid) {
  const int full = ::open("/dev/full", O_WRONLY);
  EXPECT_EXIT(expect_lost(full, "cannot write to standard output: No space left on device"),
              ::testing::ExitedWithCode(0), "");
  ::close(full);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EXIT(expect_lost(ends[1], "the reader of standard output has gone"),
              ::testing::ExitedWithCode(0), "");
  ::close(ends[1]);
}

TEST(OutputDeathTest, AClosedStreamFailsAndItsNumberIsNotTaken) {
  const auto close_and_print = [] {
    ::close(STDOUT_FILENO);
    prepare_standard_streams();
    const int next = ::open("/dev/null", O_WRONLY);
    const bool written = write_output("an answer");
    std::_Exit(next > STDERR_FILENO && !written && !finish_output().ok() ? 0 : 1);
  };
  EXPECT_EXIT(close_and_print(), ::testing::ExitedWithCode(0), "");
}

TEST(OutputDeathTest, WhatArrivesIsNoError) {
  const auto print = [] {
    const int nothing = ::open("/dev/null", O_WRONLY);
    ::dup2(nothing, STDOUT_FILENO);
    prepare_standard_streams();
    std::printf("a report\n");
    std::_Exit(write_output("an answer") && finish_output().ok() ? 0 : 1);
  };
  EXPECT_EXIT(print(), ::testing::ExitedWithCode(0), "");
}

TEST(CheckText, NamesTheFirstByteThatIsNoUtf8) {
  struct Case {
    std::string_view text;
    size_t byte;
    std::string_view value;
  };
  constexpr Case kCases[] = {
      {"\xFF", 1, "0xff"},         {"ab\x80", 3, "0x80"},
      {"\xC3", 1, "0xc3"},         {"a\xC0\xAF", 2, "0xc0"},
      {"\xED\xA0\x80", 1, "0xed"}, {"\xF4\x90\x80\x80", 1, "0xf4"},
      {"\xE2\x82", 1, "0xe2"},     {"\xC3\xA4\xE2\x28\xA1", 3, "0xe2"},
  };
  for (const Case& c : kCases) {
    const Status status = check_text(c.text, "the prompt");
    ASSERT_FALSE(status.ok()) << c.text;
    EXPECT_EQ(status.error().message, "the prompt is not UTF-8 text: byte " +
                                          std::to_string(c.byte) + " is " + std::string(c.value));
    EXPECT_EQ(status.error().hint, "iconv converts texts; other files cannot be read");
  }
  for (const std::string_view good : {"", "plain", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\xA6\x99",
                                      "\xF4\x8F\xBF\xBF", "\x7F\x01"}) {
    EXPECT_TRUE(check_text(good, "x").ok()) << good;
  }
}

TEST(Secrets, ValuesOfSecretOptionsAreBlankedAndNothingElse) {
  std::vector<std::string> words = {"headrace", "serve",        "--api-key",     "abc",
                                    "--port",   "80",           "--api-key=xyz", "--api-key-file",
                                    "keys.txt", "--api-keys=q", "--api-key"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  hide_secrets(static_cast<int>(arguments.size()), arguments.data());
  EXPECT_EQ(words, (std::vector<std::string>{"headrace", "serve", "--api-key", "xxx", "--port",
                                             "80", "--api-key=xxx", "--api-key-file", "keys.txt",
                                             "--api-keys=q", "--api-key"}));
}

}  // namespace cli_streams_test
}  // namespace headrace
