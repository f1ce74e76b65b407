// Names of models, what they stand for, and what a hub lists: without a hub.
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/hub/download.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/hub/repository.h"
#include "checkpoint/hub/store.h"

namespace headrace {
namespace names_test {

TEST(HubSpecTest, MalformedNamesAreRefused) {
  for (const char* spec :
       {"", "smollm2", "smollm2:1b", "hf:", "hf:org", "hf:org/", "hf:/repo", "hf:org/re po",
        "hf:../..", "hf:org/repo@", "hf:org/repo@../x", "hf:org/repo:x.bin",
        "hf:org/repo:../x.gguf", "hf:a/b/c", "https://host/", "https://host/model.bin",
        "http://host/.gguf", "ftp://host/x.gguf", "hf:org/.hidden"}) {
    const auto parsed = hub::parse_spec(spec);
    ASSERT_FALSE(parsed.ok()) << spec;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().hint.find("smollm2:135m"), std::string::npos);
  }
}

TEST(HubSpecTest, ASplitModelGoesByItsFirstPart) {
  EXPECT_TRUE(hub::parse_spec("hf:org/repo:Q8/m-00001-of-00003.gguf").ok());
  const auto later = hub::parse_spec("hf:org/repo:Q8/m-00002-of-00003.gguf");
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(later.error().message,
            "'hf:org/repo:Q8/m-00002-of-00003.gguf' is not a model name: it is a part of a split "
            "model, which goes by its first one, 'Q8/m-00001-of-00003.gguf'");
}

TEST(HubSpecTest, PlacesAreDistinct) {
  std::set<std::string> places;
  const std::vector<std::string> specs{
      "smollm2:135m",     "qwen2.5-coder:0.5b",  "gemma3:270m",   "qwen2.5-coder:1.5b",
      "hf:a/b",           "hf:a/b@v2",           "hf:a/b:x.gguf", "hf:a/b@v2:x.gguf",
      "https://h/x.gguf", "https://h/x.gguf?v=2"};
  for (const std::string& spec : specs) {
    const auto parsed = hub::parse_spec(spec);
    ASSERT_TRUE(parsed.ok()) << spec;
    places.insert(parsed->place);
  }
  EXPECT_EQ(places.size(), specs.size());
  EXPECT_EQ(hub::parse_spec("smollm2:135m")->place, "smollm2-135m.gguf");
}

TEST(HubSpecTest, ResolveNamesThePull) {
  const auto known = resolve_model("smollm2:135m", "/nonexistent");
  ASSERT_FALSE(known.ok());
  EXPECT_EQ(known.error().code, ErrorCode::kNotFound);
  EXPECT_NE(known.error().hint.find("headrace pull smollm2:135m"), std::string::npos);
  EXPECT_EQ(*resolve_model(HEADRACE_SOURCE_DIR, "/nonexistent"), HEADRACE_SOURCE_DIR);
  EXPECT_EQ(resolve_model("no-such-model", "/nonexistent").error().code, ErrorCode::kNotFound);
}

TEST(HubSpecTest, ShownUrlsHoldNoSecrets) {
  EXPECT_EQ(hub::shown_url("https://user:word@host/a/b.gguf?token=x#y"), "https://host/a/b.gguf");
  EXPECT_EQ(hub::shown_url("http://host:80/a@b/c"), "http://host:80/a@b/c");
}

TEST(HubListingTest, HostileAnswers) {
  for (const char* text : {"", "[]", "{}", "{\"siblings\": {}}",
                           "{\"siblings\": [], \"sha\": \"../..\"}", "nonsense"}) {
    EXPECT_FALSE(hub::parse_listing(text).ok()) << text;
  }
  const auto listing = hub::parse_listing(
      R"({"siblings": [1, {}, {"rfilename": 5}, {"rfilename": "/etc/passwd"}, {"rfilename": "a//b"},
          {"rfilename": "ok.gguf", "size": -5},
          {"rfilename": "big.gguf", "size": 9, "lfs": {"sha256": "ab", "size": 9}}]})");
  ASSERT_TRUE(listing.ok());
  ASSERT_EQ(listing->files.size(), 2u);
  EXPECT_EQ(listing->files[0].num_bytes, 0u);
  EXPECT_EQ(listing->files[1].sha256, "ab");
}

}  // namespace names_test
}  // namespace headrace
