// Names of models taken apart, and the files of the store.
#include "checkpoint/hub/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/testing/temp_folder.h"

namespace headrace::hub {
namespace hub_store_test {

namespace fs = std::filesystem;
using headrace::testing::TempFolder;

TEST(HubSpec, RepositoriesAreTakenApart) {
  struct Case {
    std::string text, organisation, repository, revision, file, place;
  };
  const Case cases[] = {
      {"hf:org/repo", "org", "repo", "main", "", "hf/org--repo@main"},
      {"hf:org/repo@v1.2", "org", "repo", "v1.2", "", "hf/org--repo@v1.2"},
      {"hf:org/repo@refs/pr/3", "org", "repo", "refs/pr/3", "", "hf/org--repo@refs--pr--3"},
      {"hf:o/r:q4.gguf", "o", "r", "main", "q4.gguf", "hf/o--r@main.gguf/q4.gguf"},
      {"hf:o/r@dev:sub/q4.gguf", "o", "r", "dev", "sub/q4.gguf", "hf/o--r@dev.gguf/sub--q4.gguf"},
      {"hf:A-b_c.d/E-f_9", "A-b_c.d", "E-f_9", "main", "", "hf/A-b_c.d--E-f_9@main"},
  };
  for (const Case& c : cases) {
    const auto spec = parse_spec(c.text);
    ASSERT_TRUE(spec.ok()) << c.text << ": " << spec.error().message;
    EXPECT_EQ(spec->kind, SpecKind::kRepository) << c.text;
    EXPECT_EQ(spec->organisation, c.organisation) << c.text;
    EXPECT_EQ(spec->repository, c.repository) << c.text;
    EXPECT_EQ(spec->revision, c.revision) << c.text;
    EXPECT_EQ(spec->file, c.file) << c.text;
    EXPECT_EQ(spec->place, c.place) << c.text;
  }
}

TEST(HubSpec, MalformedNamesSayWhatIsWrongWithThem) {
  struct Case {
    std::string text, reason;
  };
  const Case cases[] = {
      {"nothing", "there is no such name"},
      {"SMOLLM2:135m", "there is no such name"},
      {"hf:org", "a repository is written hf:ORG/REPO"},
      {"hf:a/b/c", "a repository is written hf:ORG/REPO"},
      {"hf:a/.b", "a repository is written hf:ORG/REPO"},
      {"hf:a/b@", "the revision after @ is malformed"},
      {"hf:a/b@x/../y", "the revision after @ is malformed"},
      {"hf:a/b:c.bin", "what follows the second colon must be a .gguf file of the repository"},
      {"hf:a/b:/c.gguf", "what follows the second colon must be a .gguf file of the repository"},
      {"https://h/", "a URL must end in a .gguf or .safetensors file name"},
      {"https://h/m.gguf/", "a URL must end in a .gguf or .safetensors file name"},
      {"http://h/m.pt?x=.gguf", "a URL must end in a .gguf or .safetensors file name"},
  };
  for (const Case& c : cases) {
    const auto spec = parse_spec(c.text);
    ASSERT_FALSE(spec.ok()) << c.text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(spec.error().message, "'" + c.text + "' is not a model name: " + c.reason);
    EXPECT_TRUE(spec.error().hint.ends_with("hf:ORG/REPO[@REV][:FILE.gguf], or an http(s) URL"));
  }
}

TEST(HubSpec, UrlsHaveAPlaceOfTheirOwnWithTheirFileName) {
  const Spec plain = parse_spec("https://host/dir/m.gguf").value();
  EXPECT_EQ(plain.kind, SpecKind::kUrl);
  EXPECT_EQ(plain.url, "https://host/dir/m.gguf");
  EXPECT_TRUE(plain.place.starts_with("url/"));
  EXPECT_TRUE(plain.place.ends_with("/m.gguf"));
  EXPECT_EQ(parse_spec("https://host/dir/m.gguf")->place, plain.place);
  EXPECT_NE(parse_spec("https://other/dir/m.gguf")->place, plain.place);
  const Spec signed_url = parse_spec("https://host/m.safetensors?token=a/b.bin#x").value();
  EXPECT_TRUE(signed_url.place.ends_with("/m.safetensors")) << signed_url.place;
  EXPECT_EQ(signed_url.url, "https://host/m.safetensors?token=a/b.bin#x");
}

TEST(HubSpec, EveryNamedModelIsWhole) {
  std::vector<std::string> places;
  for (const NamedModel& row : named_models()) {
    const Spec spec = parse_spec(std::string(row.name)).value();
    EXPECT_EQ(spec.kind, SpecKind::kNamed);
    EXPECT_EQ(spec.named, &row);
    EXPECT_TRUE(is_safe_path(spec.place)) << spec.place;
    EXPECT_EQ(row.sha256.size(), 64u) << row.name;
    EXPECT_EQ(row.sha256.find_first_not_of("0123456789abcdef"), std::string::npos) << row.name;
    EXPECT_GT(row.num_bytes, uint64_t{1} << 20) << row.name;
    EXPECT_GE(row.num_parts, 1) << row.name;
    EXPECT_EQ(row.num_parts > 1, row.package.find("{}") != std::string_view::npos) << row.name;
    EXPECT_FALSE(row.licence.empty()) << row.name;
  }
}

TEST(HubStore, SafePathsStayBelowTheirFolder) {
  for (const std::string_view good : {"a", "a/b", "A-1_x.y/z", "a..b"}) {
    EXPECT_TRUE(is_safe_path(good)) << good;
  }
  const std::string long_name(97, 'x');
  for (const std::string_view bad :
       {std::string_view(""), std::string_view("/a"), std::string_view("a/"),
        std::string_view("a//b"), std::string_view("."), std::string_view("../a"),
        std::string_view("a/../b"), std::string_view(".a"), std::string_view("a b"),
        std::string_view("a\\b"), std::string_view("\xC3\xA4"), std::string_view("a\0b", 3),
        std::string_view(long_name)}) {
    EXPECT_FALSE(is_safe_path(bad)) << bad;
  }
  EXPECT_TRUE(is_safe_path(std::string_view(long_name).substr(1)));
}

TEST(HubStore, PathsBecomeOneSegment) {
  EXPECT_EQ(flattened("main"), "main");
  EXPECT_EQ(flattened("refs/pr/1"), "refs--pr--1");
  EXPECT_EQ(flattened("/"), "--");
}

TEST(HubStore, DigestsOfFilesAndOfPiecesAreTheSame) {
  const TempFolder folder;
  const std::string text(3'000'000, 'q');
  Sha256 digest;
  for (size_t at = 0; at < text.size(); at += 700'001) {
    digest.update(text.data() + at, std::min<size_t>(700'001, text.size() - at));
  }
  EXPECT_EQ(*sha256_of_file(folder.write("file", text)), digest.hex());
  EXPECT_EQ(*sha256_of_file(folder.write("empty", "")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of_file(folder.file("none")).error().message,
            "cannot open '" + folder.file("none") + "': No such file or directory");
}

TEST(HubStore, FoldersAreMadeWithTheirParents) {
  const TempFolder folder;
  EXPECT_TRUE(make_folder(folder.file("a/b/c")).ok());
  EXPECT_TRUE(fs::is_directory(folder.file("a/b/c")));
  EXPECT_TRUE(make_folder(folder.file("a/b/c")).ok());
  const std::string file = folder.write("file", "x");
  const Status refused = make_folder(file + "/below");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_TRUE(refused.error().message.starts_with("cannot create the folder '" + file + "/below'"))
      << refused.error().message;
}

TEST(HubStore, ADiskThatIsTooSmallSaysWhatIsMissing) {
  const TempFolder folder;
  EXPECT_TRUE(check_free_space(folder.path(), 0).ok());
  EXPECT_TRUE(check_free_space(folder.file("none"), UINT64_MAX / 2).ok()) << "nothing is known";
  const Status full = check_free_space(folder.path(), uint64_t{1} << 60);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kExhausted);
  EXPECT_NE(full.error().message.find("1099511627840 MiB are needed"), std::string::npos)
      << full.error().message;
  EXPECT_EQ(full.error().hint,
            "free space, or choose another folder with --store or HEADRACE_HOME");
}

TEST(HubStore, FilesAndFoldersMoveIntoPlaceOverWhatWasThere) {
  const TempFolder folder;
  folder.write("new", "new bytes");
  folder.write("old", "old");
  ASSERT_TRUE(move_into_place(folder.file("new"), folder.file("old")).ok());
  EXPECT_EQ(folder.read("old"), "new bytes");
  EXPECT_FALSE(fs::exists(folder.file("new")));
  folder.write("incoming/config.json", "{}");
  ASSERT_TRUE(move_into_place(folder.file("incoming"), folder.file("model")).ok());
  EXPECT_EQ(folder.read("model/config.json"), "{}");
  const Status missing = move_into_place(folder.file("none"), folder.file("x"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message,
            "cannot open '" + folder.file("none") + "': No such file or directory");
}

TEST(HubStore, SizesOfWhatIsNoFileAreZero) {
  const TempFolder folder;
  EXPECT_EQ(file_size_or_zero(folder.write("f", "12345")), 5u);
  EXPECT_EQ(file_size_or_zero(folder.file("none")), 0u);
  EXPECT_EQ(file_size_or_zero(folder.path()), 0u);
}

TEST(HubStore, ALockIsHeldByOneAtATime) {
  const TempFolder folder;
  const std::string path = folder.file("deep/model.lock");
  std::atomic<bool> second_has_it = false;
  std::thread second;
  {
    StoreLock first = StoreLock::acquire(path).value();
    const StoreLock moved = std::move(first);  // the lock goes along
    second = std::thread([&] {
      const auto lock = StoreLock::acquire(path);
      second_has_it = lock.ok();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(second_has_it);
  }
  second.join();
  EXPECT_TRUE(second_has_it);
}

}  // namespace hub_store_test
}  // namespace headrace::hub
