#include "server/api/adapter_registry.h"

#include <gtest/gtest.h>

#include <thread>

namespace headrace {
namespace adapter_registry_test {

struct FakePacked final : PackedAdapter {
  size_t num_bytes() const override { return 1; }
};

Result<std::unique_ptr<const Adapter>> make_adapter(const AdapterFiles& files) {
  if (files.config == "bad") return make_error(ErrorCode::kCorrupt, "bad files");
  auto adapter = std::make_unique<Adapter>();
  adapter->packed = std::make_unique<FakePacked>();
  adapter->digest = files.config;
  return std::unique_ptr<const Adapter>(std::move(adapter));
}

AdapterRegistry::Read files(const std::string& config) {
  return [=]() -> Result<AdapterFolder> { return AdapterFolder{config, {}, 0}; };
}

TEST(AdapterRegistry, LoadsReplacesAndUnloads) {
  AdapterRegistry registry(make_adapter);
  ASSERT_TRUE(registry.load("a", "path", false, files("1")).ok());
  EXPECT_EQ(registry.find("a")->digest, "1");
  EXPECT_EQ(registry.find("b"), nullptr);
  const auto again = registry.load("a", "path", false, files("2"));
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("already been loaded"), std::string::npos);
  EXPECT_EQ(registry.find("a")->digest, "1");
  ASSERT_TRUE(registry.load("a", "other", true, files("2")).ok());
  EXPECT_EQ(registry.find("a")->digest, "2");
  ASSERT_EQ(registry.all().size(), 1u);
  EXPECT_EQ(registry.all()[0].source, "other");
  ASSERT_TRUE(registry.unload("a").ok());
  EXPECT_EQ(registry.find("a"), nullptr);
  EXPECT_EQ(registry.unload("a").error().code, ErrorCode::kNotFound);
}

TEST(AdapterRegistry, AFailedLoadLeavesAllAsItWas) {
  AdapterRegistry registry(make_adapter);
  ASSERT_TRUE(registry.load("a", "path", false, files("1")).ok());
  EXPECT_EQ(registry.load("a", "path", true, files("bad")).error().code, ErrorCode::kCorrupt);
  const auto unreadable = []() -> Result<AdapterFolder> {
    return make_error(ErrorCode::kNotFound, "no such folder");
  };
  EXPECT_EQ(registry.load("b", "path", false, unreadable).error().code, ErrorCode::kNotFound);
  ASSERT_EQ(registry.all().size(), 1u);
  EXPECT_EQ(registry.find("a")->digest, "1");
}

TEST(AdapterRegistry, WhoUsesAnAdapterKeepsIt) {
  AdapterRegistry registry(make_adapter);
  ASSERT_TRUE(registry.load("a", "path", false, files("1")).ok());
  EXPECT_TRUE(registry.in_use().empty());
  std::shared_ptr<const Adapter> held = registry.find("a");
  EXPECT_EQ(registry.in_use(), std::vector<std::string>{"a"});
  ASSERT_TRUE(registry.unload("a").ok());
  EXPECT_EQ(held->digest, "1");
  const std::weak_ptr<const Adapter> watched = held;
  held.reset();
  EXPECT_TRUE(watched.expired()) << "nobody else holds it";
}

TEST(AdapterRegistry, AnotherRegistryHasWhatOneHad) {
  AdapterRegistry before(make_adapter);
  std::string text = "1";
  const auto changing = [&text]() -> Result<AdapterFolder> { return AdapterFolder{text, {}, 0}; };
  ASSERT_TRUE(before.load("same", "path", false, files("0")).ok());
  ASSERT_TRUE(before.load("changed", "path", false, changing).ok());
  text = "2";
  AdapterRegistry after(make_adapter);
  after.restore(before.recipes());
  EXPECT_EQ(after.find("same")->digest, "0");
  EXPECT_EQ(after.all().size(), 1u);
  EXPECT_EQ(after.find("changed"), nullptr) << "not what was looked at when it was loaded";
  EXPECT_TRUE(after.is_lost("changed"));
  EXPECT_FALSE(after.is_lost("same"));
  EXPECT_FALSE(after.is_lost("other"));
  EXPECT_EQ(after.recipes().size(), 2u);
  EXPECT_TRUE(after.in_use().empty());
  text = "1";
  AdapterRegistry again(make_adapter);
  again.restore(after.recipes());
  EXPECT_EQ(again.find("changed")->digest, "1") << "it is back";
}

TEST(AdapterRegistry, WhatIsLostIsLoadedAnewOrUnloaded) {
  AdapterRegistry registry(make_adapter);
  registry.restore({{"a", "path", files("bad")}, {"b", "path", files("bad")}});
  ASSERT_TRUE(registry.load("a", "path", false, files("1")).ok()) << "nothing is replaced";
  EXPECT_FALSE(registry.is_lost("a"));
  ASSERT_TRUE(registry.unload("b").ok());
  EXPECT_FALSE(registry.is_lost("b"));
  AdapterRegistry takes_none;
  takes_none.restore({{"a", "path", files("1")}});
  EXPECT_TRUE(takes_none.is_lost("a"));
}

TEST(BaseModelWarning, IsOfNamesThatAreNotAlike) {
  const std::vector<std::string> names = {"smollm2-135m-q4_1", "smollm2:135m"};
  for (const char* alike : {"", "HuggingFaceTB/SmolLM2-135M", "SmolLM2-135M-Instruct",
                            "/data/smollm2-135m/", "smollm2_135m"}) {
    EXPECT_EQ(base_model_warning(alike, names), "") << alike;
  }
  EXPECT_EQ(base_model_warning("Qwen/Qwen2.5-0.5B", names),
            "it was made for 'Qwen/Qwen2.5-0.5B', but the model here is 'smollm2-135m-q4_1'");
}

TEST(AdapterRegistry, NamesAndNumbersHaveLimits) {
  AdapterRegistry registry(make_adapter);
  for (const std::string& name : {std::string(), std::string(257, 'a'), std::string("a\nb"),
                                  std::string("a\"b"), std::string("a\0b", 3)}) {
    EXPECT_EQ(registry.load(name, "", false, files("1")).error().code, ErrorCode::kInvalidArgument);
  }
  for (size_t i = 0; i < kMaxAdapters; ++i) {
    ASSERT_TRUE(registry.load("org/a" + std::to_string(i), "", false, files("1")).ok());
  }
  EXPECT_EQ(registry.load("more", "", false, files("1")).error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(registry.load("org/a0", "", true, files("2")).ok()) << "in the place of one";
  EXPECT_EQ(AdapterRegistry().load("a", "", false, files("1")).error().code,
            ErrorCode::kUnsupported);
}

TEST(AdapterRegistry, OneLoadAtATime) {
  AdapterRegistry registry(make_adapter);
  Result<AdapterRegistry::Held> inner = AdapterRegistry::Held();
  const auto nested = [&]() -> Result<AdapterFolder> {
    std::thread other([&] { inner = registry.load("b", "", false, files("2")); });
    other.join();
    return files("1")();
  };
  ASSERT_TRUE(registry.load("a", "", false, nested).ok());
  ASSERT_FALSE(inner.ok());
  EXPECT_EQ(inner.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(registry.find("b"), nullptr);
}

}  // namespace adapter_registry_test
}  // namespace headrace
