#include "server/model_registry.h"

#include <gtest/gtest.h>

#include <future>

#include "server/test_support.h"

namespace headrace {
namespace model_registry_test {

using test::Client;
using test::events_of;

// Two models over scripted engines, which answer differently.
class ModelRegistryTest : public ::testing::Test {
 protected:
  static ModelInfo info(std::string name) {
    ModelInfo made = test::make_model_info();
    made.name = std::move(name);
    return made;
  }
  static test::Script script(std::string reply, int context) {
    test::Script made;
    made.reply = std::move(reply);
    made.max_context = context;
    return made;
  }
  std::vector<ModelPtr> models() {
    return {std::make_shared<ServedModel>(one_, bundle_, info("one"),
                                          std::vector<std::string>{"gpt-x", "shared"}),
            std::make_shared<ServedModel>(two_, bundle_, info("two"),
                                          std::vector<std::string>{"shared"})};
  }

  const TextBundle bundle_ = test::make_bundle();
  test::ScriptedEngine one_{script("I am one.", 100)};
  test::ScriptedEngine two_{script("I am two.", 200)};
};

TEST_F(ModelRegistryTest, FindsByNameAndByAlias) {
  ModelRegistry registry({models()});
  EXPECT_EQ(registry.find("")->get()->info.name, "one");
  EXPECT_EQ(registry.find("one")->get()->info.name, "one");
  EXPECT_EQ(registry.find("gpt-x")->get()->info.name, "one");
  EXPECT_EQ(registry.find("two")->get()->serving.max_context, 200);
  EXPECT_EQ(registry.find("shared")->get()->info.name, "one");  // the first that has it
}

TEST_F(ModelRegistryTest, WhatItDoesNotHaveIsNamedWithWhatItHas) {
  ModelRegistry registry({models()});
  const auto found = registry.find("three");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(found.error().param, "model");
  EXPECT_EQ(found.error().message,
            "the model \"three\" does not exist here, this server has 'one', 'two'");
  EXPECT_FALSE(registry.find_for({{"model", 7}}).ok());
  EXPECT_EQ(registry.find_for({{"model", nullptr}})->get()->info.name, "one");
}

class TwoModels : public ModelRegistryTest {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.port = 0;
    auto created = Server::create(models(), options);
    ASSERT_TRUE(created.ok()) << created.error().message;
    server_ = std::move(created).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
  }
  boost::json::value json_of(const std::string& body) { return parse_json(body, "body").value(); }

  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(TwoModels, EachRequestReachesTheModelItNames) {
  Client client(server_->port());
  for (const auto& [name, reply, served] :
       {std::tuple{"one", "I am one.", "one"}, std::tuple{"two", "I am two.", "two"},
        std::tuple{"gpt-x", "I am one.", "gpt-x"}}) {
    const auto response = client.post(
        "/v1/chat/completions",
        fmt::format(R"({{"model":"{}","messages":[{{"role":"user","content":"Hi"}}]}})", name));
    ASSERT_EQ(response.status, 200) << response.body;
    const auto json = json_of(response.body);
    EXPECT_EQ(json.at("choices").at(0).at("message").at("content").as_string(), reply);
    EXPECT_EQ(json.at("model").as_string(), served);
  }
  EXPECT_EQ(client.post("/v1/completions", R"({"model":"three","prompt":"a"})").status, 404);
}

TEST_F(TwoModels, EachHasItsOwnContext) {
  Client client(server_->port());
  const std::string prompt(150, 'x');
  const auto ask = [&](std::string_view model) {
    return client.post(
        "/v1/completions",
        fmt::format(R"({{"model":"{}","prompt":"{}","max_tokens":1}})", model, prompt));
  };
  EXPECT_EQ(ask("one").status, 400);
  EXPECT_EQ(ask("two").status, 200);
  const auto counted = client.post("/tokenize", R"({"model":"two","prompt":"abc"})");
  EXPECT_EQ(json_of(counted.body).at("max_model_len").as_int64(), 200);
}

TEST_F(TwoModels, AllAreListedAndMeasured) {
  Client client(server_->port());
  const auto list = json_of(client.get("/v1/models").body).at("data").as_array();
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(list[3].at("id").as_string(), "two");
  EXPECT_EQ(list[4].at("root").as_string(), "two");
  EXPECT_EQ(json_of(client.get("/v1/models/two").body).at("max_model_len").as_int64(), 200);
  const auto status = json_of(client.get("/api/headrace/status").body);
  EXPECT_EQ(status.at("model").at("id").as_string(), "one");
  ASSERT_EQ(status.at("models").as_array().size(), 2u);
  EXPECT_EQ(status.at("models").at(1).at("id").as_string(), "two");
  const std::string metrics = client.get("/metrics").body;
  EXPECT_NE(metrics.find("vllm:num_requests_running{model_name=\"two\""), std::string::npos);
  EXPECT_EQ(client.get("/ready").status, 200);
}

using namespace std::chrono_literals;

// What a loaded model is made of.
struct Parts {
  TextBundle bundle = test::make_bundle();
  test::ScriptedEngine engine;
  explicit Parts(std::string reply) : engine(script_of(std::move(reply))) {}
  static test::Script script_of(std::string reply) {
    test::Script made;
    made.reply = std::move(reply);
    return made;
  }
};

struct EmptyAdapter final : PackedAdapter {
  size_t num_bytes() const override { return 1; }
};

// Sources whose loads the test counts, holds and fails.
class OnDemandTest : public ModelRegistryTest {
 protected:
  ModelSource source(const std::string& name, size_t num_bytes = 10) {
    return {name, {}, num_bytes, [this, name](const std::function<void(double)>& progress) {
              return load(name, progress);
            }};
  }
  Result<ModelPtr> load(const std::string& name, const std::function<void(double)>& progress) {
    progress(0.25);
    std::unique_lock lock(mutex_);
    loads_.push_back(name);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    if (!failure_.empty()) return make_error(ErrorCode::kCorrupt, "/secret/path: {}", failure_);
    auto parts = std::make_shared<Parts>("I am " + name);
    return ModelPtr(std::make_shared<ServedModel>(parts->engine, parts->bundle, info(name),
                                                  std::vector<std::string>(), parts, make_adapter));
  }
  // Its digest is its configuration.
  static Result<std::unique_ptr<const Adapter>> make_adapter(const AdapterFiles& files) {
    auto adapter = std::make_unique<Adapter>();
    adapter->packed = std::make_unique<EmptyAdapter>();
    adapter->digest = files.config;
    return std::unique_ptr<const Adapter>(std::move(adapter));
  }
  ServedModels served(std::vector<ModelSource> sources) {
    return {models(), std::move(sources), options_};
  }
  void hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void wait_for_loads(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 10s, [&] { return loads_.size() >= count; }));
  }
  std::vector<std::string> loads() {
    std::lock_guard lock(mutex_);
    return loads_;
  }

  // What acquire() gives, once it does.
  std::future<Result<ModelPtr>> ask(ModelRegistry& registry, std::string_view name) {
    auto promise = std::make_shared<std::promise<Result<ModelPtr>>>();
    registry.acquire(name, [promise](Result<ModelPtr> model) { promise->set_value(model); });
    return promise->get_future();
  }
  static ModelStatus status_of(const ModelRegistry& registry, std::string_view name) {
    for (ModelStatus& status : registry.status()) {
      if (status.names.front() == name) return status;
    }
    return {};
  }
  static bool is_asleep(const ModelRegistry& registry, std::string_view name) {
    return status_of(registry, name).state == ModelState::kAsleep;
  }

  RegistryOptions options_{.tick = 5ms};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> loads_;
  bool held_ = false;
  std::string failure_;
};

TEST_F(OnDemandTest, IsLoadedOnceForAllThatWait) {
  ModelRegistry registry(served({source("late")}));
  EXPECT_TRUE(is_asleep(registry, "late"));
  EXPECT_EQ(registry.all().size(), 2u);
  hold(true);
  auto first = ask(registry, "late"), second = ask(registry, "late");
  wait_for_loads(1);
  const ModelStatus loading = status_of(registry, "late");
  EXPECT_EQ(loading.state, ModelState::kLoading);
  EXPECT_EQ(loading.progress, 0.25);
  EXPECT_EQ(loading.num_waiting, 2u);
  EXPECT_EQ(registry.find("late").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(ask(registry, "one").get()->get()->info.name, "one");  // the others answer meanwhile
  hold(false);
  const ModelPtr model = first.get().value();
  EXPECT_EQ(model->info.name, "late");
  EXPECT_EQ(second.get().value(), model);
  EXPECT_EQ(registry.find("late").value(), model);
  EXPECT_EQ(loads().size(), 1u);
  EXPECT_EQ(registry.all().size(), 3u);
}

TEST_F(OnDemandTest, SleepsWhenIdleAndComesBack) {
  options_.keep_alive = 20ms;
  ModelRegistry registry(served({source("late")}));
  {
    const ModelPtr held = ask(registry, "late").get().value();
    std::this_thread::sleep_for(60ms);
    EXPECT_FALSE(is_asleep(registry, "late"));  // in use
  }
  EXPECT_TRUE(test::eventually([&] { return is_asleep(registry, "late"); }));
  EXPECT_EQ(status_of(registry, "late").sleeps_in, std::nullopt);  // it does already
  EXPECT_TRUE(ask(registry, "late").get().ok());
  EXPECT_EQ(loads().size(), 2u);
  ASSERT_TRUE(registry.keep_alive("late", -1ms).ok());
  std::this_thread::sleep_for(60ms);
  EXPECT_FALSE(is_asleep(registry, "late"));
  ASSERT_TRUE(registry.sleep("late").ok());
  EXPECT_TRUE(test::eventually([&] { return is_asleep(registry, "late"); }));
  EXPECT_EQ(registry.sleep("one").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(registry.sleep("none").error().code, ErrorCode::kNotFound);
}

TEST_F(OnDemandTest, TellsWhenAModelWillSleep) {
  options_.keep_alive = 1h;
  ModelRegistry registry(served({source("late")}));
  EXPECT_EQ(status_of(registry, "one").sleeps_in, std::nullopt);
  {
    const ModelPtr held = ask(registry, "late").get().value();
    EXPECT_EQ(status_of(registry, "late").sleeps_in, 1h);  // from when it is let go
  }
  ASSERT_TRUE(test::eventually([&] { return status_of(registry, "late").sleeps_in < 1h; }));
  EXPECT_GT(status_of(registry, "late").sleeps_in, 59min);
  ASSERT_TRUE(registry.keep_alive("late", -1ms).ok());
  EXPECT_EQ(status_of(registry, "late").sleeps_in, std::nullopt);
}

TEST_F(OnDemandTest, WhatIsLetGoWhileItLoadsGoesAfterItsAnswers) {
  ModelRegistry registry(served({source("late")}));
  hold(true);
  auto first = ask(registry, "late");
  wait_for_loads(1);
  ASSERT_TRUE(registry.sleep("late").ok());
  hold(false);
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(test::eventually([&] { return is_asleep(registry, "late"); }));
}

// Files of an adapter of the test, whose digest is their text.
AdapterRegistry::Read text_files(const std::string& text) {
  return [=]() -> Result<AdapterFolder> { return AdapterFolder{text, {}, 0}; };
}

TEST_F(OnDemandTest, WakesWithTheAdaptersThatItHad) {
  ModelSource late = source("late");
  late.adapters.push_back({"given", "folder", text_files("1")});
  ModelRegistry registry(served({late}));
  EXPECT_EQ(status_of(registry, "late").adapters, std::vector<std::string>{"given"});
  bool is_there = true;
  {
    const ModelPtr model = ask(registry, "given").get().value();  // by the adapter's name
    EXPECT_EQ(model->info.name, "late");
    EXPECT_EQ(model->adapters.find("given")->digest, "1");
    EXPECT_TRUE(status_of(registry, "late").adapters.empty());
    ASSERT_TRUE(model->adapters.load("live", "", false, text_files("2")).ok());
    ASSERT_TRUE(model->adapters.load("gone", "", false, text_files("3")).ok());
    ASSERT_TRUE(model->adapters.unload("gone").ok());
    const auto vanishing = [&is_there]() -> Result<AdapterFolder> {
      if (!is_there) return make_error(ErrorCode::kNotFound, "no such folder");
      return AdapterFolder{"4", {}, 0};
    };
    ASSERT_TRUE(model->adapters.load("vanishing", "", false, vanishing).ok());
  }
  ASSERT_TRUE(registry.sleep("late").ok());
  ASSERT_TRUE(test::eventually([&] { return is_asleep(registry, "late"); }));
  EXPECT_EQ(status_of(registry, "late").adapters,
            (std::vector<std::string>{"given", "live", "vanishing"}));
  EXPECT_EQ(ask(registry, "gone").get().error().code, ErrorCode::kNotFound);
  is_there = false;
  const ModelPtr model = ask(registry, "live").get().value();
  EXPECT_EQ(model->adapters.find("given")->digest, "1");
  EXPECT_EQ(model->adapters.find("live")->digest, "2");
  EXPECT_EQ(model->adapters.find("vanishing"), nullptr);
  EXPECT_TRUE(model->adapters.is_lost("vanishing"));
  EXPECT_EQ(registry.find("vanishing").value(), model) << "which says that it is lost";
  ASSERT_TRUE(registry.keep_alive("late", -1ms).ok());
}

TEST_F(OnDemandTest, AFailedLoadIsToldWithoutPathsAndTriedAgain) {
  failure_ = "broken";
  ModelRegistry registry(served({source("late")}));
  const auto failed = ask(registry, "late").get();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(failed.error().message.find("secret"), std::string::npos);
  EXPECT_TRUE(status_of(registry, "late").failed);
  failure_.clear();
  EXPECT_TRUE(ask(registry, "late").get().ok());
  EXPECT_FALSE(status_of(registry, "late").failed);
}

TEST_F(OnDemandTest, TheLongestUnusedMakesRoom) {
  options_.memory_bytes = 25;
  ModelRegistry registry(served({source("a"), source("b"), source("c"), source("vast", 26)}));
  for (const char* name : {"a", "b", "a"}) {
    EXPECT_TRUE(ask(registry, name).get().ok());
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_TRUE(ask(registry, "c").get().ok());
  EXPECT_TRUE(is_asleep(registry, "b"));
  EXPECT_FALSE(is_asleep(registry, "a"));
  const auto vast = ask(registry, "vast").get();
  ASSERT_FALSE(vast.ok());
  EXPECT_EQ(vast.error().code, ErrorCode::kInvalidArgument);  // it never will fit
}

TEST_F(OnDemandTest, WhatIsInUseStaysAndOthersWaitOnlySoLong) {
  options_.memory_bytes = 10;
  options_.load_patience = 50ms;
  ModelRegistry registry(served({source("a"), source("b")}));
  ModelPtr held = ask(registry, "a").get().value();
  const auto late = ask(registry, "b").get();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  auto waiting = ask(registry, "b");
  held.reset();
  EXPECT_TRUE(waiting.get().ok());
  EXPECT_TRUE(is_asleep(registry, "a"));
}

TEST_F(OnDemandTest, SoManyWaitAndNoMore) {
  options_.max_waiting = 1;
  ModelRegistry registry(served({source("late")}));
  hold(true);
  auto first = ask(registry, "late");
  EXPECT_EQ(ask(registry, "late").get().error().code, ErrorCode::kExhausted);
  hold(false);
  EXPECT_TRUE(first.get().ok());
}

TEST_F(OnDemandTest, ClosingAnswersThoseWhoWait) {
  ModelRegistry registry(served({source("late"), source("later")}));
  hold(true);
  auto first = ask(registry, "late");
  wait_for_loads(1);
  auto second = ask(registry, "later");
  registry.close();
  EXPECT_EQ(second.get().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(first.get().error().code, ErrorCode::kUnavailable);
  hold(false);
  registry.join();
  EXPECT_EQ(ask(registry, "later").get().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(loads().size(), 1u);
}

TEST_F(OnDemandTest, RequestsWaitForTheirModel) {
  ServerOptions options;
  options.port = 0;
  const auto server = Server::create_with({}, served({source("late")}), options).value();
  std::thread thread([&] { server->run(); });
  const auto list = Client(server->port()).get("/v1/models");
  EXPECT_NE(list.body.find(R"("id":"late")"), std::string::npos);
  EXPECT_NE(list.body.find(R"("value":"asleep")"), std::string::npos);
  const std::string tags = Client(server->port()).get("/api/tags").body;
  EXPECT_NE(tags.find(R"("name":"late:latest")"), std::string::npos) << tags;
  const std::string loaded = Client(server->port()).get("/api/ps").body;
  EXPECT_EQ(loaded.find(R"("name":"late:latest")"), std::string::npos) << loaded;
  hold(true);
  std::thread releases([&] {
    wait_for_loads(1);
    Client other(server->port());
    EXPECT_EQ(other.post("/v1/completions", R"({"prompt":"a"})").status, 200);
    EXPECT_NE(other.get("/api/headrace/status").body.find(R"("state":"loading")"),
              std::string::npos);
    hold(false);
  });
  Client client(server->port());
  const auto response = client.post("/v1/completions", R"({"model":"late","prompt":"a"})");
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find("I am late"), std::string::npos) << response.body;
  const auto vector = client.post("/v1/embeddings", R"({"model":"late","input":"a"})");
  EXPECT_EQ(vector.status, 200) << vector.body;
  EXPECT_EQ(client.post("/tokenize", R"({"model":"late","prompt":"a"})").status, 200);
  releases.join();
  const auto gone = client.post("/api/generate", R"({"model":"late:latest","keep_alive":0})");
  EXPECT_NE(gone.body.find(R"("done_reason":"unload")"), std::string::npos) << gone.body;
  server->stop();
  thread.join();
}

TEST_F(OnDemandTest, LettingGoOfASleepingModelLoadsNothing) {
  options_.memory_bytes = 10;
  ServerOptions options;
  options.port = 0;
  const auto server =
      Server::create_with({}, served({source("late"), source("vast", 11)}), options).value();
  std::thread thread([&] { server->run(); });
  Client client(server->port());
  const auto let_go = [&](const std::string& path, std::string_view model) {
    return client.post(path, fmt::format(R"({{"model":"{}","keep_alive":0}})", model));
  };
  for (const std::string path : {"/api/generate", "/api/chat"}) {
    for (const std::string_view model : {"late", "late:latest", "vast"}) {
      const auto gone = let_go(path, model);
      EXPECT_EQ(gone.status, 200) << gone.body;
      EXPECT_NE(gone.body.find(R"("done_reason":"unload")"), std::string::npos) << gone.body;
      EXPECT_NE(gone.body.find(fmt::format(R"("model":"{}")", model)), std::string::npos);
    }
    EXPECT_EQ(let_go(path, "none").status, 404);
    const auto stays = let_go(path, "one");
    EXPECT_NE(stays.body.find(R"("done_reason":"load")"), std::string::npos) << stays.body;
  }
  EXPECT_TRUE(loads().empty());
  server->stop();
  thread.join();
}

}  // namespace model_registry_test
}  // namespace headrace
