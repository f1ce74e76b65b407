// The numerics id against the numbers themselves: a change of arithmetic that forgets to raise a
// version fails here.

#include "engine/numerics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/testing/temp_folder.h"
#include "bench/synth.h"
#include "checkpoint/digest.h"
#include "engine/sampler.h"
#include "verify/sequence_runner.h"

namespace headrace {
namespace numerics_test {

constexpr int kPromptTokens = 24;
constexpr SynthShape kTiny = {"tiny", "llama", 256, 2, 4, 2, 64, 512, 320, true, 10000, 128};

std::unique_ptr<Backend> backend_of(const std::string& isa, ActivationArithmetic activations) {
  auto backend = create_cpu_backend({.isa = isa, .num_threads = 1, .activations = activations});
  return backend.ok() ? std::move(backend).value() : nullptr;
}

// The logits of a small random model, as a digest of their bits.
std::string bits_of(Backend& backend, std::string_view format_name, KvType kv_type) {
  SynthFormat format = synth_formats().front();
  for (const SynthFormat& row : synth_formats()) {
    if (row.name == format_name) format = row;
  }
  const testing::TempFolder folder;
  const std::string path = folder.file("numerics_model.gguf");
  EXPECT_TRUE(write_synth(kTiny, format, 7, path).ok());
  const auto checkpoint = Checkpoint::open(path).value();
  const auto model =
      Model::load(*checkpoint, backend, {.max_batch_tokens = 16, .kv_type = kv_type}).value();
  auto runner = SequenceRunner::create(*model, backend, 64).value();
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < kPromptTokens; ++i) prompt.push_back(i * 13 % 300);
  std::string all;
  runner.append(prompt, 0, [&](int64_t, std::span<const float> logits) {
    const auto bytes = std::as_bytes(logits);
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  std::string hex;
  const FileDigest digest = sha256(all);
  for (const std::byte byte : std::span(digest).first(8)) {
    hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  }
  return hex;
}

struct PinnedBits {
  std::string_view format;
  ActivationArithmetic activations;
  KvType kv_type;
  std::string_view bits;
  std::string isa = "avx2";
};

using enum ActivationArithmetic;
const PinnedBits kPinned[] = {
    {"f32", kExact, KvType::kF32, "37e5c6ad22b3c882"},
    {"bf16", kExact, KvType::kBF16, "add1d0ef5b194081"},
    {"q8_0", kExact, KvType::kF16, "063eaeb7e7b8d8e3"},
    {"q8_0", kFast, KvType::kF16, "2d972bf1f43a09ce"},
    {"q4_k", kExact, KvType::kInt8, "20593290a5cf61f9"},
    {"q6_k", kFast, KvType::kFp8, "7b840b5095cb22f9"},
    {"q8_0", kExact, KvType::kInt16, "b3e33be5589fc089"},
    {"q8_0", kExact, KvType::kInt16, "c1e48b3f775bf06d", "avx512_vnni"},  // whole numbers
};

// Whoever sees this fail and meant it: raise the class's version in kernels/registry.cpp, then pin
// the new bits here.
TEST(Numerics, BitsOfTheClassesAreThoseOfTheirVersions) {
  int num_cases = 0;
  for (const PinnedBits& row : kPinned) {
    const auto backend = backend_of(row.isa, row.activations);
    if (backend == nullptr) continue;  // not on this processor
    for (const std::string_view pinned :
         {"f32-fma v1", "integer v1", row.isa == "avx2" ? "integer v1" : "fixed-point v3"}) {
      EXPECT_NE(backend->numerics(row.kv_type).find(pinned), std::string::npos)
          << "pin the new version's bits";
    }
    EXPECT_EQ(bits_of(*backend, row.format, row.kv_type), row.bits)
        << row.format << " " << static_cast<int>(row.activations) << " "
        << static_cast<int>(row.kv_type);
    ++num_cases;
  }
  if (num_cases == 0) GTEST_SKIP() << "no AVX2 here";
  EXPECT_GE(num_cases, 7);
}

TEST(Numerics, TheIdCoversEveryIngredient) {
  const auto backend = backend_of("reference", kExact);
  const std::string text = numerics_text(*backend, KvType::kF16);
  for (const std::string_view part :
       {"matmul f32x16 ", "matmul q8_0x16 ", "norm - ", "attention - ", "f32-reference v1",
        "integer v1", "keys and values in splits of 1024, steps of 64", "keys and values as f16",
        "sampler v3"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_EQ(kSamplerVersion, 3) << "pin the new version here";
}

// Every class in use stands in the text with its version, every op with its class.
TEST(Numerics, TheTextNamesTheVersionOfEachClassInUse) {
  for (const std::string isa : {"reference", "avx2", "avx512"}) {
    for (const ActivationArithmetic activations : {kExact, kFast}) {
      const auto backend = backend_of(isa, activations);
      if (backend == nullptr) continue;  // not on this processor
      std::set<std::string> in_use;
      for (const KernelInfo& row : backend->kernels()) {
        if (row.selected) in_use.insert(row.numerics_class);
      }
      std::set<std::string> named;
      std::istringstream lines(backend->numerics(KvType::kInt16));
      for (std::string line; std::getline(lines, line);) {
        const size_t version = line.rfind(" v");
        const size_t begin = line.rfind(": ", version);
        if (version == std::string::npos || begin == std::string::npos) continue;
        EXPECT_GT(std::atoi(line.c_str() + version + 2), 0) << line;
        named.insert(line.substr(begin + 2, version - begin - 2));
      }
      EXPECT_EQ(named, in_use) << isa;
    }
  }
}

// What a change of the arithmetic does to the text must reach the id.
TEST(Numerics, TheIdChangesWithAVersionOfAClassAndWithTheSplitOfKeysAndValues) {
  const auto backend = backend_of("reference", kExact);
  const std::string text = numerics_text(*backend, KvType::kF16);
  EXPECT_EQ(numerics_id(text), numerics_id(*backend, KvType::kF16));
  struct Change {
    std::string before, after;
  };
  const Change changes[] = {
      {"f32-reference v1", "f32-reference v2"}, {"integer v1", "integer v2"},
      {"splits of 1024", "splits of 256"},      {"steps of 64", "steps of 32"},
      {"values as f16", "values as bf16"},      {"sampler v3", "sampler v4"},
  };
  std::set<std::string> ids = {numerics_id(text)};
  for (const Change& change : changes) {
    const size_t at = text.find(change.before);
    ASSERT_NE(at, std::string::npos) << change.before;
    std::string changed = text;
    changed.replace(at, change.before.size(), change.after);
    EXPECT_TRUE(ids.insert(numerics_id(changed)).second) << change.after;
  }
}

TEST(Numerics, TheIdChangesWithEveryIngredientAndHasOneForm) {
  std::set<std::string> ids;
  for (const ActivationArithmetic activations : {kExact, kFast}) {
    const auto backend = backend_of("reference", activations);
    for (int kv_type = 0; kv_type < kNumKvTypes; ++kv_type) {
      const std::string id = numerics_id(*backend, static_cast<KvType>(kv_type));
      EXPECT_EQ(id.size(), 3u + 16u);
      EXPECT_TRUE(id.starts_with("hr-"));
      EXPECT_EQ(id.find_first_not_of("0123456789abcdef", 3), std::string::npos);
      EXPECT_EQ(id, numerics_id(*backend, static_cast<KvType>(kv_type)));
      ids.insert(id);
    }
  }
  EXPECT_EQ(ids.size(), 2u * kNumKvTypes);
  EXPECT_EQ(system_fingerprint("hr-0", "x").substr(0, 5), "hr-0-");
  EXPECT_NE(system_fingerprint("hr-0", "x"), system_fingerprint("hr-0", "y"));
}

}  // namespace numerics_test
}  // namespace headrace
