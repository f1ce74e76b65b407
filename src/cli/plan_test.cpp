// headrace plan: what it prints of a model and a machine that are files.

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <algorithm>

#include "base/testing/temp_folder.h"
#include "cli/testing/program.h"

namespace headrace {
namespace plan_command_test {

namespace json = boost::json;
using testing::Outcome;
using testing::run_program;
using testing::TempFolder;

constexpr std::string_view kMachine =
    R"({"kind":"machine","processor":"Invented","isa":"avx2+fma+f16c","memory_bytes":68719476736})"
    "\n"
    R"({"kind":"peak","name":"a","arithmetic":"f32","isa":"avx2+fma","threads":8,)"
    R"("one_thread_op_s":5e10,"all_threads_op_s":4e11})"
    "\n"
    R"({"kind":"peak","name":"b","arithmetic":"int8","isa":"avx2","threads":8,)"
    R"("one_thread_op_s":2e11,"all_threads_op_s":16e11})"
    "\n"
    R"({"kind":"read","working_set_bytes":1048576,"threads":8,)"
    R"("one_thread_byte_s":1e10,"all_threads_byte_s":8e10})"
    "\n";

class PlanCommandTest : public ::testing::Test {
 protected:
  PlanCommandTest() : machine_(folder_.write("machine.json", kMachine)) {
    model_ = folder_.file("tiny.gguf");
    const Outcome written = run_program(
        "bench synth --shape llama-1b --format q8_0 --layers 2 --hidden 64 --heads 4 --kv-heads 2 "
        "--head-dim 16 --intermediate 96 --vocab 320 --out " +
        model_);
    EXPECT_EQ(written.status, 0) << written.text;
  }

  TempFolder folder_;
  std::string machine_, model_;
};

TEST_F(PlanCommandTest, TellsMemorySpeedAndPriceOfAMachineThatIsNotHere) {
  const Outcome outcome = run_program("plan " + model_ + " --machine " + machine_ +
                                      " --clients 4 --price-per-hour 2 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  boost::system::error_code error;
  const json::value report = json::parse(outcome.text, error);
  ASSERT_FALSE(error) << outcome.text;
  EXPECT_EQ(report.at("processor").as_string(), "Invented");
  const json::value& memory = report.at("memory");
  const auto bytes = [&](const char* key) { return memory.at(key).to_number<size_t>(); };
  EXPECT_EQ(bytes("total"), bytes("weights") + bytes("kv") + bytes("workspace") + bytes("other"));
  EXPECT_TRUE(memory.at("fits").as_bool());
  EXPECT_GT(report.at("decode").as_array().size(), 3u);
  EXPECT_EQ(report.at("formats").as_array().size(), 9u);
  EXPECT_EQ(report.at("kv_types").as_array().size(), 6u);
  EXPECT_GT(report.at("price").at("million_answer_tokens").to_number<double>(), 0);
  EXPECT_FALSE(report.at("expects").as_bool());
  const json::object& prompt = report.at("prefill").at(0).as_object();
  EXPECT_GT(prompt.at("limit_tok_s").to_number<double>(), 0);
  EXPECT_FALSE(prompt.contains("expected_tok_s")) << "nothing is measured of this machine's ops";
  const Outcome text = run_program("plan " + model_ + " --machine " + machine_ + " --memory 1M");
  EXPECT_NE(text.text.find("Only limits: the file of this machine"), std::string::npos)
      << text.text;
  EXPECT_EQ(text.status, 0) << text.text;
  EXPECT_NE(text.text.find("fits       no; at most 0 tokens each"), std::string::npos) << text.text;
}

// Every op takes a time of its own; how long all of them take is tested beside ExpectedTimes.
std::string op_rows() {
  std::string rows;
  const auto add = [&](const char* op, const std::string& of, const char* seconds) {
    rows += std::string(R"({"kind":"op","op":")") + op + R"(","of":")" + of +
            R"(","size":1,"threads":8,"unit_s":)" + seconds + "}\n";
  };
  for (const char* op : {"norm", "finish", "gate", "rope", "join", "start"}) add(op, "", "1e-6");
  for (const std::string_view type : kKvTypeNames) {
    add("append", std::string(type), "1e-9");
    for (const char* group : {" 64 x1", " 64 x4", " 64 x8"}) {
      add("attention_row", std::string(type) + group, "1e-9");
      add("attention_chunk", std::string(type) + group, "1e-9");
    }
  }
  add("quantise", "int16", "1e-9");
  for (const char* layout : {"q8_0x16", "q4_0x16", "mxfp4x16"}) {
    add("product", std::string(layout) + " int16", "1e-9");
  }
  for (const char* layout : {"f32x16", "f16x16x2", "bf16x16x2"}) {
    add("product", std::string(layout) + " f32", "1e-9");
  }
  return rows;
}

TEST_F(PlanCommandTest, TellsWhatToExpectWhereOpsWereMeasured) {
  const std::string rated = folder_.write("rated.json", std::string(kMachine) + op_rows());
  const std::string plan = "plan " + model_ + " --machine " + rated + " --price-per-hour 2";
  const Outcome outcome = run_program(plan + " --json");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const json::value report = json::parse(outcome.text);
  EXPECT_TRUE(report.at("expects").as_bool());
  for (const char* rows : {"prefill", "decode"}) {
    for (const json::value& row : report.at(rows).as_array()) {
      const double expected = row.at("expected_tok_s").to_number<double>();
      EXPECT_GT(expected, 0);
      EXPECT_LT(expected, row.at("limit_tok_s").to_number<double>()) << json::serialize(row);
    }
  }
  const Outcome of_limits =
      run_program("plan " + model_ + " --machine " + machine_ + " --price-per-hour 2 --json");
  const auto price = [](const json::value& value) {
    return value.at("price").at("million_answer_tokens").to_number<double>();
  };
  EXPECT_GT(price(report), price(json::parse(of_limits.text))) << "prices are of what is expected";
  EXPECT_EQ(run_program(plan).text.find("Only limits"), std::string::npos);
}

TEST_F(PlanCommandTest, SaysWhatWouldFitAStatedMemoryAndSpeed) {
  const std::string plan = "plan " + model_ + " --machine " + machine_ + " --clients 2";
  const auto parsed = [](const Outcome& outcome) {
    boost::system::error_code error;
    const json::value report = json::parse(outcome.text, error);
    EXPECT_FALSE(error) << outcome.text;
    return report;
  };
  const json::value any = parsed(run_program(plan + " --json"));
  const auto row = [&](const char* name) {
    for (const json::value& each : any.at("formats").as_array()) {
      if (each.at("name").as_string() == name) return each.as_object();
    }
    return json::object();
  };
  const json::object large = row("BF16"), small = row("Q8_0");
  ASSERT_FALSE(large.empty() || small.empty()) << json::serialize(any);
  EXPECT_TRUE(large.at("fits").as_bool() && large.at("fast_enough").as_bool());
  // Between the two in memory, and of both speeds the half a client.
  const size_t memory =
      (large.at("total").to_number<size_t>() + small.at("total").to_number<size_t>()) / 2;
  const double fastest = std::max(large.at("tok_s_of_clients").to_number<double>(),
                                  small.at("tok_s_of_clients").to_number<double>());
  const Outcome tight = run_program(plan + " --memory " + std::to_string(memory));
  EXPECT_NE(tight.text.find("suit       Q8_0"), std::string::npos) << tight.text;
  const Outcome fast = run_program(plan + " --speed " + std::to_string(fastest * 10));
  EXPECT_NE(fast.text.find("suit       none"), std::string::npos) << fast.text;
  EXPECT_NE(fast.text.find("2 clients at depth"), std::string::npos) << fast.text;
}

TEST_F(PlanCommandTest, WhatIsNoMachineOrNoModelIsRefused) {
  const std::string wrong = folder_.write("wrong.json", "{\"kind\": \"wheel\"}\n");
  const Outcome machine = run_program("plan " + model_ + " --machine " + wrong);
  EXPECT_EQ(machine.status, 1);
  EXPECT_NE(machine.text.find("wrong.json:1: \"kind\": 'wheel'"), std::string::npos)
      << machine.text;
  const Outcome model = run_program("plan ./no-such.gguf --machine " + machine_);
  EXPECT_EQ(model.status, 1);
  EXPECT_NE(model.text.find("no-such.gguf"), std::string::npos) << model.text;
  const Outcome context =
      run_program("plan " + model_ + " --context 1000000 --machine " + machine_);
  EXPECT_NE(context.text.find("--context is 1000000"), std::string::npos) << context.text;
}

}  // namespace plan_command_test
}  // namespace headrace
