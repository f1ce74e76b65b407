#include "server/telemetry/kv_publisher.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <zmq.hpp>

namespace headrace {
namespace kv_publisher_test {

using Json = nlohmann::json;

KvEvent stored(uint64_t name, std::optional<uint64_t> parent, int32_t first_token) {
  KvEvent event{KvEvent::Kind::kStored, name, parent, {}};
  for (size_t i = 0; i < event.tokens.size(); ++i) {
    event.tokens[i] = first_token + static_cast<int32_t>(i);
  }
  return event;
}
KvEvent removed(uint64_t name) { return {KvEvent::Kind::kRemoved, name, {}, {}}; }

TEST(KvBatch, AsMapsIsTheSchemaThatRoutersRead) {
  const KvEvent events[] = {stored(~uint64_t{0}, {}, 100),
                            stored(2, ~uint64_t{0}, 116),
                            stored(9, 5, 0),
                            removed(2),
                            removed(9),
                            {KvEvent::Kind::kCleared, 0, {}, {}}};
  const Json batch = Json::from_msgpack(pack_kv_batch(events, 12.5, KvBatchForm::kMaps));
  EXPECT_EQ(batch.at("ts"), 12.5);
  EXPECT_EQ(batch.at("data_parallel_rank"), 0);
  const Json& list = batch.at("events");
  ASSERT_EQ(list.size(), 4u);  // blocks in a row are one event
  EXPECT_EQ(list[0].at("type"), "BlockStored");
  EXPECT_EQ(list[0].at("block_hashes"), Json({~uint64_t{0}, 2}));
  EXPECT_TRUE(list[0].at("parent_block_hash").is_null());
  EXPECT_EQ(list[0].at("token_ids").size(), 32u);
  EXPECT_EQ(list[0].at("token_ids")[16], 116);
  EXPECT_EQ(list[0].at("block_size"), 16);
  for (const char* name : {"lora_id", "medium", "lora_name"}) {
    EXPECT_TRUE(list[0].at(name).is_null()) << name;
  }
  EXPECT_EQ(list[1].at("parent_block_hash"), 5);
  EXPECT_EQ(list[2].at("type"), "BlockRemoved");
  EXPECT_EQ(list[2].at("block_hashes"), Json({2, 9}));
  EXPECT_EQ(list[3], Json({{"type", "AllBlocksCleared"}}));
}

TEST(KvBatch, AsArraysTheTagComesFirst) {
  const KvEvent events[] = {stored(1, 7, 0), removed(3)};
  const Json batch = Json::from_msgpack(pack_kv_batch(events, 1, KvBatchForm::kArrays));
  ASSERT_EQ(batch.size(), 3u);
  EXPECT_EQ(batch[2], 0);
  const Json& event = batch[1][0];
  ASSERT_EQ(event.size(), 8u);
  EXPECT_EQ(event[0], "BlockStored");
  EXPECT_EQ(event[1], Json::array({1}));
  EXPECT_EQ(event[2], 7);
  EXPECT_EQ(event[3].size(), 16u);
  EXPECT_EQ(event[4], 16);
  EXPECT_EQ(batch[1][1], Json::array({"BlockRemoved", Json::array({3}), nullptr}));
}

// One frame after the other, each within ten seconds.
std::vector<std::string> receive(zmq::socket_t& socket) {
  std::vector<std::string> frames;
  zmq::message_t frame;
  do {
    if (!socket.recv(frame)) return frames;
    frames.push_back(frame.to_string());
  } while (frame.more());
  return frames;
}

std::string number(uint64_t value) {
  std::string bytes(8, '\0');
  for (int i = 7; i >= 0; --i, value >>= 8)
    bytes[static_cast<size_t>(i)] = static_cast<char>(value);
  return bytes;
}

std::string free_endpoint(const std::string& name) {
  return fmt::format("ipc://@headrace-test-{}-{}", ::getpid(), name);
}

TEST(KvPublisher, SendsNumberedBatchesAndAgainWhatWasMissed) {
  KvPublisherOptions options;
  options.endpoint = free_endpoint("events");
  options.replay_endpoint = free_endpoint("replay");
  options.topic = "kv@a@m";
  auto publisher = KvPublisher::create(options);
  ASSERT_TRUE(publisher.ok()) << publisher.error().message;
  zmq::context_t context;
  zmq::socket_t reader(context, zmq::socket_type::sub), asker(context, zmq::socket_type::req);
  for (zmq::socket_t* socket : {&reader, &asker}) socket->set(zmq::sockopt::rcvtimeo, 10'000);
  reader.set(zmq::sockopt::subscribe, "kv@");
  reader.connect(options.endpoint);
  asker.connect(options.replay_endpoint);

  // A reader that joins misses what was sent before; how much is up to its connection.
  std::vector<std::string> frames;
  reader.set(zmq::sockopt::rcvtimeo, 20);
  uint64_t num_sent = 0;
  while (frames.empty() && num_sent < 500) {
    (*publisher)->on_kv_event(stored(++num_sent, {}, 0));
    frames = receive(reader);
  }
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0], "kv@a@m");
  ASSERT_EQ(frames[1].size(), 8u);
  const Json batch = Json::from_msgpack(frames[2]);
  EXPECT_GE(batch.at("events").size(), 1u);

  // All batches since the first one, then the end.
  asker.send(zmq::str_buffer("\0\0\0\0\0\0\0\0"), zmq::send_flags::none);
  uint64_t next = 0, num_events = 0;
  frames = receive(asker);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0], number(next));
  num_events += Json::from_msgpack(frames[1]).at("events").size();
  EXPECT_GE(num_events, 1u);
}

TEST(KvPublisher, ReplayEndsWithMinusOne) {
  KvPublisherOptions options;
  options.endpoint = free_endpoint("e2");
  options.replay_endpoint = free_endpoint("r2");
  options.max_kept_batches = 2;
  auto publisher = KvPublisher::create(options);
  ASSERT_TRUE(publisher.ok());
  for (uint64_t i = 1; i <= 5; ++i) {
    (*publisher)->on_kv_event(stored(i, {}, 0));
    while ((*publisher)->num_batches() < i) std::this_thread::yield();
  }
  zmq::context_t context;
  zmq::socket_t asker(context, zmq::socket_type::dealer);
  asker.set(zmq::sockopt::rcvtimeo, 10'000);
  asker.connect(options.replay_endpoint);
  const std::string first = number(0);
  asker.send(zmq::str_buffer(""), zmq::send_flags::sndmore);
  asker.send(zmq::buffer(first), zmq::send_flags::none);
  for (const uint64_t expected : {3u, 4u}) {  // the newest two are kept
    const auto frames = receive(asker);
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[1], number(expected));
    EXPECT_EQ(Json::from_msgpack(frames[2]).at("events")[0].at("block_hashes"),
              Json::array({expected + 1}));
  }
  const auto end = receive(asker);
  ASSERT_EQ(end.size(), 3u);
  EXPECT_EQ(end[1], std::string(8, '\xFF'));
  EXPECT_EQ(end[2], "");
}

TEST(KvPublisher, AFullQueueLosesEventsAndSaysThatAllIsUnknown) {
  KvPublisherOptions options;
  options.endpoint = free_endpoint("full");
  options.max_queued_events = 0;
  auto publisher = KvPublisher::create(options);
  ASSERT_TRUE(publisher.ok());
  for (uint64_t i = 0; i < 100; ++i) (*publisher)->on_kv_event(stored(i, {}, 0));
  EXPECT_EQ((*publisher)->num_dropped(), 100u);
}

TEST(KvPublisher, AnEndpointThatCannotBeBoundIsAnError) {
  KvPublisherOptions options;
  options.endpoint = "tcp://256.0.0.1:1";
  const auto publisher = KvPublisher::create(options);
  ASSERT_FALSE(publisher.ok());
  EXPECT_EQ(publisher.error().code, ErrorCode::kIo);
  EXPECT_TRUE(publisher.error().message.starts_with("cannot publish KV events at 'tcp://256"));
}

}  // namespace kv_publisher_test
}  // namespace headrace
