#include "server/lab/event_feed.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"

namespace headrace::lab::event_feed_test {

using headrace::testing::TempFolder;

// Keeps what was written; is as full and as gone as the test says.
class Reader : public ResponseWriter {
 public:
  void send(HttpResponse) override {}
  void start_stream(StreamHead head) override { type = head.content_type; }
  void write(std::string_view data) override {
    told += data;
    queued += data.size();
  }
  void end_stream() override { ended = true; }
  size_t queued_bytes() const override { return queued; }
  bool disconnected() const override { return gone; }
  void on_disconnect(std::function<void()>) override {}
  void on_written(std::function<void()>) override {}
  void post(std::function<void()>) override {}

  std::string take() {
    queued = 0;
    return std::exchange(told, {});
  }

  std::string type, told;
  size_t queued = 0;
  bool ended = false, gone = false;
};

size_t count(const std::string& text, std::string_view what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

class LabEventFeed : public ::testing::Test {
 protected:
  LabEventFeed() : store_(Store::open(folder_.file("lab"), Store::Durability::kFast).value()) {}

  int64_t add_experiment() {
    Experiment made;
    made.title = "one or two";
    made.metric = "speed";
    made.sides = {{"one", {"true"}}, {"two", {"true"}}};
    return store_->add(made, "ada").value();
  }
  std::shared_ptr<Reader> listen(int64_t after) {
    auto reader = std::make_shared<Reader>();
    EXPECT_TRUE(feed_.add(reader, after));
    return reader;
  }

  TempFolder folder_;
  std::unique_ptr<Store> store_;
  EventFeed feed_{*store_};
};

TEST_F(LabEventFeed, TellsEachEntryOnceAndTheQueueWhenItsOrderChanges) {
  add_experiment();
  const auto reader = listen(0);
  EXPECT_EQ(reader->type, "text/event-stream; charset=utf-8");
  EXPECT_FALSE(feed_.advance());
  const std::string first = reader->take();
  EXPECT_TRUE(first.starts_with("id: 1\nevent: log\ndata: {\"id\":1,")) << first;
  EXPECT_EQ(count(first, "event: queue\ndata: {\"running\":[],\"queue\":[{\"experiment\":1,"), 1u);
  EXPECT_FALSE(feed_.advance());
  EXPECT_EQ(reader->take(), "");
  ASSERT_TRUE(store_->note("experiment:1", "a remark", "bob").ok());
  EXPECT_FALSE(feed_.advance());
  const std::string remark = reader->take();
  EXPECT_EQ(count(remark, "event: log"), 1u);
  EXPECT_EQ(count(remark, "event: queue"), 0u);
  ASSERT_TRUE(store_->set_paused(1, true, "bob").ok());
  EXPECT_FALSE(feed_.advance());
  EXPECT_EQ(count(reader->take(), "\"paused\":[1]"), 1u);
}

TEST_F(LabEventFeed, ResumesBehindAnEntry) {
  for (int i = 0; i < 3; ++i) add_experiment();
  const auto reader = listen(2);
  feed_.advance();
  const std::string told = reader->take();
  EXPECT_EQ(count(told, "event: log"), 1u);
  EXPECT_EQ(count(told, "id: 3\n"), 1u);
  const auto other = listen(3);
  feed_.advance();
  EXPECT_EQ(count(other->told, "event: log"), 0u);
  EXPECT_EQ(count(other->told, "event: queue"), 1u);
  EXPECT_EQ(reader->told, "");
}

TEST_F(LabEventFeed, ASlowReaderHoldsLittleAndLosesNothing) {
  const std::string text(1000, 'x');
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(store_->note("", text, "ada").ok());
  const auto slow = listen(0);
  EXPECT_TRUE(feed_.advance());
  EXPECT_TRUE(feed_.advance());
  EXPECT_LT(slow->queued, 70'000u);
  std::string all;
  for (bool behind = true; behind;) {
    all += slow->take();
    behind = feed_.advance();
  }
  all += slow->take();
  EXPECT_EQ(count(all, "event: log"), 400u);
  for (int id = 1; id <= 400; ++id) EXPECT_EQ(count(all, fmt::format("id: {}\n", id)), 1u);
  EXPECT_LT(all.find("id: 399\n"), all.find("id: 400\n"));
}

TEST_F(LabEventFeed, WhoLeftIsForgottenAndTooManyAreRefused) {
  std::vector<std::shared_ptr<Reader>> readers;
  for (size_t i = 0; i < kMaxListeners; ++i) readers.push_back(listen(0));
  EXPECT_FALSE(feed_.add(std::make_shared<Reader>(), 0));
  readers[5]->gone = true;
  feed_.advance();
  EXPECT_TRUE(feed_.add(std::make_shared<Reader>(), 0));
  feed_.close();
  EXPECT_TRUE(feed_.is_empty());
  EXPECT_TRUE(readers[0]->ended);
}

}  // namespace headrace::lab::event_feed_test
