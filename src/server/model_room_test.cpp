// Models that are loaded on demand: room in memory, failures and time.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>

#include "server/model_registry.h"
#include "server/test_support.h"

namespace headrace {
namespace model_room_test {

using namespace std::chrono_literals;
using test::eventually;

struct RoomParts {
  TextBundle bundle = test::make_bundle();
  test::ScriptedEngine engine;
};

ModelPtr room_model(const std::string& name) {
  auto parts = std::make_shared<RoomParts>();
  ModelInfo info = test::make_model_info();
  info.name = name;
  return std::make_shared<ServedModel>(parts->engine, parts->bundle, std::move(info),
                                       std::vector<std::string>(), parts);
}

// Sources whose next loads fail as the test says.
class ModelRoomTest : public ::testing::Test {
 protected:
  ModelSource source(const std::string& name, size_t num_bytes = 10,
                     std::vector<std::string> aliases = {}) {
    return {name, std::move(aliases), num_bytes,
            [this, name](const std::function<void(double)>&) -> Result<ModelPtr> {
              std::lock_guard lock(mutex_);
              loads_ += name + " ";
              auto& errors = errors_[name];
              if (errors.empty()) return room_model(name);
              Error error = errors.back();
              errors.pop_back();
              return error;
            }};
  }
  void start(std::vector<ModelSource> sources) {
    registry_ = std::make_unique<ModelRegistry>(
        ServedModels{{room_model("base")}, std::move(sources), options_});
  }
  std::future<Result<ModelPtr>> ask(std::string_view name, ModelRegistry::HasLeft has_left = {}) {
    auto promise = std::make_shared<std::promise<Result<ModelPtr>>>();
    registry_->acquire(
        name, [promise](Result<ModelPtr> model) { promise->set_value(model); },
        std::move(has_left));
    return promise->get_future();
  }
  static bool is_answered(const std::future<Result<ModelPtr>>& asked) {
    return asked.wait_for(0s) == std::future_status::ready;
  }
  // Loads it and lets go of it.
  bool wake(std::string_view name) { return ask(name).get().ok(); }
  std::string awake() const {
    std::string names;
    for (const ModelPtr& model : registry_->all()) names += model->info.name + " ";
    return names;
  }
  std::string loads() {
    std::lock_guard lock(mutex_);
    return loads_;
  }
  ModelStatus status_of(size_t index) const { return registry_->status().at(index); }

  RegistryOptions options_{.tick = 5ms};
  std::mutex mutex_;
  std::string loads_;
  std::map<std::string, std::vector<Error>> errors_;
  std::unique_ptr<ModelRegistry> registry_;  // last: ends before what its sources use
};

TEST_F(ModelRoomTest, AnAliasLoadsItsModel) {
  start({source("late", 10, {"nick", "base"})});
  EXPECT_EQ(ask("nick").get().value()->info.name, "late");
  EXPECT_EQ(ask("base").get().value()->info.name, "base");  // the first that has the name
  EXPECT_EQ(status_of(1).names, (std::vector<std::string>{"late", "nick", "base"}));
  EXPECT_EQ(registry_->find_for({{"model", "nick"}}).value()->info.name, "late");
  EXPECT_EQ(loads(), "late ");
}

TEST_F(ModelRoomTest, WhoCannotWaitBeginsTheLoad) {
  start({source("late")});
  const auto found = registry_->find("late");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(found.error().message, "late is being loaded");
  EXPECT_EQ(found.error().hint, "ask again in a moment");
  EXPECT_EQ(found.error().param, "model");
  EXPECT_TRUE(eventually([&] { return registry_->find("late").ok(); }));
}

TEST_F(ModelRoomTest, TheLimitCountsWhatIsLoadedOnDemandAlone) {
  options_.memory_bytes = 20;
  start({source("a"), source("b"), source("c", 20)});
  EXPECT_TRUE(wake("a") && wake("b"));
  EXPECT_EQ(awake(), "base a b ");
  EXPECT_TRUE(wake("c"));  // takes the place of both
  EXPECT_EQ(awake(), "base c ");
  EXPECT_TRUE(wake("a"));
  EXPECT_EQ(awake(), "base a ");
  EXPECT_EQ(loads(), "a b c a ");
}

TEST_F(ModelRoomTest, WhatNeverFitsSaysSoAndTakesNothing) {
  options_.memory_bytes = size_t{64} << 20;
  start({source("a"), source("vast", size_t{65} << 20)});
  EXPECT_TRUE(wake("a"));
  const auto vast = ask("vast").get();
  ASSERT_FALSE(vast.ok());
  EXPECT_EQ(vast.error().message, "vast has 65 MiB of weights, but the limit for models is 64 MiB");
  EXPECT_EQ(vast.error().param, "model");
  EXPECT_EQ(awake(), "base a ");
  EXPECT_EQ(loads(), "a ");
  EXPECT_EQ(status_of(2).num_waiting, 0u);
}

// The sizes of sources are estimates: the system has the last word.
TEST_F(ModelRoomTest, WhereTheSystemHasNoRoomIdleModelsMakeIt) {
  start({source("a"), source("b"), source("big")});
  EXPECT_TRUE(wake("a"));
  std::this_thread::sleep_for(2ms);
  EXPECT_TRUE(wake("b"));
  errors_["big"] = {make_error(ErrorCode::kExhausted, "no memory")};
  EXPECT_TRUE(wake("big"));
  EXPECT_EQ(awake(), "base b big ");  // the longest unused went, and no more than it took
  EXPECT_EQ(loads(), "a b big big ");
}

TEST_F(ModelRoomTest, WhereNothingMoreCanGoTheReasonIsTold) {
  start({source("a"), source("big")});
  const ModelPtr held = ask("a").get().value();
  errors_["big"] = {make_error(ErrorCode::kExhausted, "it needs 7 GiB, and 2 GiB are free")};
  const auto big = ask("big").get();
  ASSERT_FALSE(big.ok());
  EXPECT_EQ(big.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(big.error().message, "big cannot be loaded: it needs 7 GiB, and 2 GiB are free");
  EXPECT_TRUE(status_of(2).failed);
  EXPECT_EQ(awake(), "base a ");  // in use
  EXPECT_TRUE(wake("big"));
  EXPECT_FALSE(status_of(2).failed);
}

TEST_F(ModelRoomTest, OtherFailuresFreeNobody) {
  start({source("a"), source("broken")});
  EXPECT_TRUE(wake("a"));
  errors_["broken"] = {make_error(ErrorCode::kIo, "/srv/ann/broken.gguf: gone")};
  const auto broken = ask("broken").get();
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message, "broken could not be loaded; the server's log says why");
  EXPECT_EQ(broken.error().hint, "");
  EXPECT_EQ(awake(), "base a ");
}

TEST_F(ModelRoomTest, AChosenTimeHoldsUntilTheModelSleeps) {
  options_.keep_alive = -1ms;  // for ever
  start({source("late")});
  EXPECT_TRUE(wake("late"));
  ASSERT_TRUE(registry_->keep_alive("late", 1ms).ok());
  EXPECT_TRUE(eventually([&] { return status_of(1).state == ModelState::kAsleep; }));
  EXPECT_TRUE(wake("late"));
  std::this_thread::sleep_for(40ms);
  EXPECT_EQ(status_of(1).state, ModelState::kAwake);  // the server's own time again
  EXPECT_EQ(registry_->keep_alive("base", 1ms).error().message,
            "base was named at the start and stays awake");
  EXPECT_EQ(registry_->keep_alive("none", 1ms).error().code, ErrorCode::kNotFound);
}

TEST_F(ModelRoomTest, PatienceEndsForEachByItself) {
  options_.memory_bytes = 10;
  options_.load_patience = 200ms;
  start({source("a"), source("b")});
  ModelPtr held = ask("a").get().value();
  auto early = ask("b");
  EXPECT_EQ(status_of(2).num_waiting, 1u);
  std::this_thread::sleep_for(100ms);
  auto late = ask("b");
  const auto expired = early.get();
  ASSERT_FALSE(expired.ok());
  EXPECT_EQ(expired.error().message,
            "the model could not be loaded in time: others in use take the memory");
  held.reset();
  (void)late.get();  // is answered, whichever way the clocks fell
  EXPECT_TRUE(wake("b"));
  EXPECT_EQ(awake(), "base b ");
}

// Clients that ask without pause leave no moment in which their model is idle.
TEST_F(ModelRoomTest, NewcomersWaitBehindWhoHasWaitedForRoom) {
  options_.memory_bytes = 10;
  options_.turn_after = 0ms;
  start({source("a"), source("b")});
  ModelPtr held = ask("a").get().value();
  auto other = ask("b");
  auto newcomer = ask("a");
  EXPECT_FALSE(is_answered(newcomer));
  EXPECT_EQ(status_of(1).num_waiting, 1u);
  EXPECT_EQ(registry_->find("a").error().message, "a makes room for another model");
  EXPECT_TRUE(ask("base").get().ok());  // which stands in nobody's way
  held.reset();
  ModelPtr second = other.get().value();
  auto third = ask("b");  // behind the newcomer: its turn is next
  EXPECT_FALSE(is_answered(newcomer));
  EXPECT_FALSE(is_answered(third));
  second.reset();
  EXPECT_EQ(newcomer.get().value()->info.name, "a");
  EXPECT_EQ(third.get().value()->info.name, "b");
  EXPECT_EQ(loads(), "a b a b ");
}

TEST_F(ModelRoomTest, AShortWaitHoldsNobodyUp) {
  options_.memory_bytes = 10;
  options_.turn_after = 1h;
  start({source("a"), source("b")});
  ModelPtr held = ask("a").get().value();
  auto other = ask("b");
  EXPECT_TRUE(is_answered(ask("a")));
  EXPECT_FALSE(is_answered(other));
  held.reset();
  EXPECT_TRUE(other.get().ok());
}

TEST_F(ModelRoomTest, WhoGivesUpLetsTheOthersThrough) {
  options_.memory_bytes = 10;
  options_.turn_after = 0ms;
  std::atomic<bool> has_left{false};
  start({source("a"), source("b")});
  const ModelPtr held = ask("a").get().value();
  auto other = ask("b", [&] { return has_left.load(); });
  auto newcomer = ask("a");
  EXPECT_FALSE(is_answered(newcomer));
  has_left = true;
  EXPECT_EQ(newcomer.get().value(), held);
  EXPECT_FALSE(other.get().ok());
  EXPECT_TRUE(is_answered(ask("a")));
  EXPECT_EQ(loads(), "a ");
}

TEST_F(ModelRoomTest, NoMoreModelsMakeRoomThanMust) {
  options_.memory_bytes = 20;
  options_.turn_after = 0ms;
  start({source("a"), source("c"), source("b")});
  ModelPtr first = ask("a").get().value();
  const ModelPtr last = ask("c").get().value();
  auto other = ask("b");
  auto newcomer = ask("a");
  EXPECT_TRUE(is_answered(ask("c")));  // b has room where a was, which was loaded first
  EXPECT_FALSE(is_answered(newcomer));
  first.reset();
  EXPECT_TRUE(other.get().ok());
  EXPECT_TRUE(newcomer.get().ok());
  EXPECT_EQ(awake(), "base a c ");
}

// One that would fit now takes the room that the other is to have.
TEST_F(ModelRoomTest, TurnsComeInTheOrderOfArrival) {
  options_.memory_bytes = 20;
  options_.turn_after = 0ms;
  start({source("small", 5), source("b"), source("a", 15)});
  ModelPtr held = ask("a").get().value();
  auto other = ask("b");
  auto small = ask("small");
  auto newcomer = ask("a");
  std::this_thread::sleep_for(30ms);  // several looks
  EXPECT_FALSE(is_answered(small));
  held.reset();
  EXPECT_TRUE(other.get().ok());
  EXPECT_TRUE(small.get().ok());
  EXPECT_TRUE(newcomer.get().ok());
  EXPECT_EQ(loads(), "a b small a ");
}

TEST_F(ModelRoomTest, AfterTheCloseOnlyThoseThatAreAwakeAnswer) {
  start({source("a"), source("b")});
  EXPECT_TRUE(wake("a"));
  registry_->close();
  EXPECT_TRUE(ask("a").get().ok());
  EXPECT_TRUE(registry_->find("base").ok());
  const auto asleep = ask("b").get();
  ASSERT_FALSE(asleep.ok());
  EXPECT_EQ(asleep.error().message, "the server is shutting down and takes no new requests");
  EXPECT_EQ(registry_->find("b").error().code, ErrorCode::kUnavailable);
  registry_->join();
  EXPECT_EQ(loads(), "a ");
}

}  // namespace model_room_test
}  // namespace headrace
