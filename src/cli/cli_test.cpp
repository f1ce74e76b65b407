// The program as a user meets it: exit codes and exact error lines. Needs no model that is not made
// here.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/temp_folder.h"
#include "cli/command.h"
#include "cli/testing/program.h"

namespace headrace {
namespace cli_test {

namespace fs = std::filesystem;
using testing::Outcome;

Outcome headrace(const std::string& arguments) { return testing::run_program(arguments); }

// Of this process; gone when it ends.
const testing::TempFolder& own_folder() {
  static const testing::TempFolder folder;
  return folder;
}

std::string write_file(const std::string& name, const std::string& contents) {
  return own_folder().write(name, contents);
}

TEST(Cli, HelpListsEveryCommand) {
  const Outcome help = headrace("--help");
  EXPECT_EQ(help.status, 0);
  for (const CommandRow& row : command_rows()) {
    const std::string_view name = row.name;
    EXPECT_NE(help.text.find(name), std::string::npos) << name;
    const Outcome manual = headrace(std::string(name) + " --help");
    EXPECT_EQ(manual.status, 0) << name;
    EXPECT_NE(manual.text.find("Usage: headrace " + std::string(name)), std::string::npos) << name;
  }
}

TEST(Cli, VersionNamesIsaAndBuild) {
  const Outcome version = headrace("version --isa reference");
  EXPECT_EQ(version.status, 0);
  EXPECT_NE(version.text.find("isa            reference"), std::string::npos) << version.text;
  EXPECT_NE(version.text.find("commit"), std::string::npos);
}

TEST(Cli, ListKernelsShowsTheReferenceUnitEverywhere) {
  const Outcome list = headrace("--list-kernels");
  EXPECT_EQ(list.status, 0);
  EXPECT_NE(list.text.find("reference"), std::string::npos);
  EXPECT_NE(list.text.find("in use"), std::string::npos);
}

TEST(Cli, MissingFileIsNamed) {
  const Outcome missing = headrace("inspect ./no-such-model.gguf");
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.text.find("headrace: "), std::string::npos);
  EXPECT_NE(missing.text.find("no-such-model.gguf"), std::string::npos) << missing.text;
}

TEST(Cli, ModelThatWasNotPulledSaysHowToPullIt) {
  const Outcome missing = headrace("run --model smollm2:135m hello");
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.text.find("headrace pull smollm2:135m"), std::string::npos) << missing.text;
}

TEST(Cli, TruncatedFileIsRefused) {
  const std::string path = write_file("truncated.gguf", std::string("GGUF\x03\0\0\0\x01", 9));
  const Outcome truncated = headrace("inspect '" + path + "'");
  EXPECT_EQ(truncated.status, 1);
  EXPECT_NE(truncated.text.find("truncated.gguf"), std::string::npos) << truncated.text;
}

TEST(Cli, FileOfAnotherKindIsRefused) {
  const std::string path =
      write_file("story.gguf", "Once upon a time there was no model in this file.");
  const Outcome other = headrace("inspect '" + path + "'");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.text.find("story.gguf"), std::string::npos) << other.text;
}

TEST(Cli, WrongOptionIsRefusedWithItsRange) {
  const Outcome wrong = headrace("run --temperature nan hello");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(wrong.text, "headrace: --temperature is 'nan', but it must be a number in 0..100\n");
}

TEST(Cli, UnknownVerifyKindIsRefused) {
  const Outcome wrong = headrace("verify everything now");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(
      wrong.text,
      "headrace: cannot verify 'everything'; the kinds are golden, tokenizer, template, model "
      "and kernels\n");
}

TEST(Cli, VerifyKernelsChecksEveryRowOfAUnit) {
  const Outcome good = headrace("verify kernels --quick --isa reference");
  EXPECT_EQ(good.status, 0) << good.text;
  EXPECT_NE(good.text.find("ok   attention_reference"), std::string::npos) << good.text;
  EXPECT_NE(good.text.find(" cases, largest error "), std::string::npos) << good.text;
  EXPECT_NE(good.text.find(" passed, 0 failed"), std::string::npos) << good.text;
  EXPECT_EQ(good.text.find("_avx"), std::string::npos) << good.text;
}

TEST(Cli, VerifyKernelsRefusesWhatItDoesNotTake) {
  const Outcome more = headrace("verify kernels everything");
  EXPECT_EQ(more.status, 2);
  EXPECT_EQ(more.text, "headrace: usage: headrace verify kernels [--isa NAME] [--quick]\n");
  const Outcome unknown = headrace("verify kernels --isa sse9");
  EXPECT_NE(unknown.status, 0);
  EXPECT_NE(unknown.text.find("sse9"), std::string::npos) << unknown.text;
  const Outcome lonely = headrace("verify golden");
  EXPECT_EQ(lonely.status, 2);
  EXPECT_EQ(lonely.text, "headrace: usage: headrace verify golden DIR...\n");
}

TEST(Cli, UnknownBenchmarkIsRefused) {
  const Outcome wrong = headrace("bench everything");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(wrong.text,
            "headrace: there is no benchmark 'everything'; the kinds are machine, step, serve and "
            "synth\n");
  const Outcome lacking = headrace("bench step");
  EXPECT_EQ(lacking.status, 2);
  EXPECT_EQ(
      lacking.text,
      "headrace: 'bench step' takes 1 argument but got 0; usage: headrace bench step MODEL\n");
}

TEST(Cli, RandomModelNeedsAKnownShapeAndAFile) {
  const Outcome shape = headrace("bench synth --shape giant --out x.gguf");
  EXPECT_EQ(shape.status, 2);
  EXPECT_NE(shape.text.find("there is no shape 'giant'; there are: smollm2-135m"),
            std::string::npos)
      << shape.text;
  const Outcome format = headrace("bench synth --format q3 --out x.gguf");
  EXPECT_EQ(format.status, 2);
  EXPECT_NE(format.text.find("there is no format 'q3'"), std::string::npos) << format.text;
  const Outcome file = headrace("bench synth");
  EXPECT_EQ(file.status, 2);
  EXPECT_NE(file.text.find("--out FILE.gguf"), std::string::npos) << file.text;
}

// A tiny random model, written by the program itself.
std::string tiny_model() {
  const std::string path = own_folder().file("bench_tiny.gguf");
  const Outcome written = headrace(
      "bench synth --shape llama-1b --format q8_0 --layers 2 --hidden 64 --heads 4 --kv-heads 2 "
      "--head-dim 16 --intermediate 96 --vocab 320 --out '" +
      path + "'");
  EXPECT_EQ(written.status, 0) << written.text;
  return path;
}

TEST(Cli, BenchStepPrintsOneRowPerPoint) {
  const std::string points =
      " --prefill 16,32 --depth 0,40 --batch 1,3 --decode 2 --repeats 2 --threads 1 --json";
  const Outcome run = headrace("bench step '" + tiny_model() + "'" + points);
  EXPECT_EQ(run.status, 0) << run.text;
  for (const char* part :
       {"\"kind\":\"load\"", "\"kind\":\"prefill\",\"tokens\":16", "\"tokens\":32",
        "\"kind\":\"decode\",\"depth\":0", "\"depth\":40", "\"kind\":\"batch\",\"sequences\":1",
        "\"sequences\":3", "\"share\":", "\"expected_tok_s\":", "\"expected_ms\":",
        "\"joins_per_layer\":", "\"near_forecast\":false",
        "\"wrong_term\":", "\"between ops\":{\"ms\":"}) {
    EXPECT_NE(run.text.find(part), std::string::npos) << part << " in " << run.text;
  }
}

TEST(Cli, BenchStepCanTimeThePointsAlone) {
  const Outcome run =
      headrace("bench step '" + tiny_model() +
               "' --prefill 16 --depth '' --batch '' --repeats 1 --threads 1 --bare --json");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_NE(run.text.find("\"tok_s\":"), std::string::npos) << run.text;
  for (const char* part : {"expected_tok_s", "limit_tok_s", "\"share\"", "wrong_term"}) {
    EXPECT_EQ(run.text.find(part), std::string::npos) << part << " in " << run.text;
  }
}

TEST(Cli, BenchStepRefusesPointsThatAreNoNumbers) {
  const Outcome wrong = headrace("bench step '" + tiny_model() + "' --depth 1,,2");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.text.find("--depth is '1,,2', but it must be whole numbers in 0..1048576"),
            std::string::npos)
      << wrong.text;
  EXPECT_EQ(headrace("bench step ./no-such.gguf").status, 1);
}

TEST(Cli, VerifyOfNothingFails) {
  const testing::TempFolder empty;
  EXPECT_NE(headrace("verify golden '" + empty.path() + "'").status, 0);
}

}  // namespace cli_test
}  // namespace headrace
