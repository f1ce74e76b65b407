#include "server/telemetry/kv_publisher.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <zmq.hpp>

#include "base/log.h"

namespace headrace {
namespace {

constexpr size_t kMaxBatchEvents = 1024;
constexpr std::chrono::milliseconds kReplayPeriod{50};
constexpr int kHighWaterMark = 100'000;  // batches that a slow reader may be behind
constexpr uint64_t kEndOfReplay = UINT64_MAX;

std::string big_endian(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

uint64_t from_big_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

double wall_clock_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

// Used by the publisher's thread alone.
struct KvPublisher::Sockets {
  zmq::context_t context{1};
  zmq::socket_t publisher{context, zmq::socket_type::pub};
  zmq::socket_t replay{context, zmq::socket_type::router};
  std::deque<std::pair<uint64_t, std::string>> kept;  // number and batch
  uint64_t next_number = 0;

  // Frames of one message; a reader that takes none loses it.
  static void send_all(zmq::socket_t& socket, std::span<const std::string> frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      const auto flags = i + 1 < frames.size()
                             ? zmq::send_flags::sndmore | zmq::send_flags::dontwait
                             : zmq::send_flags::dontwait;
      if (!socket.send(zmq::buffer(frames[i]), flags)) return;
    }
  }

  // One request for what was missed, if there is one. False: none.
  bool serve_replay() {
    std::vector<std::string> frames;
    zmq::message_t frame;
    do {
      if (!replay.recv(frame, zmq::recv_flags::dontwait)) return false;
      frames.push_back(frame.to_string());
    } while (frame.more());
    if (frames.size() != 3 || frames[2].size() != sizeof(uint64_t)) return true;
    const uint64_t first = from_big_endian(frames[2]);
    for (const auto& [number, batch] : kept) {
      if (number < first) continue;
      const std::string message[] = {frames[0], "", big_endian(number), batch};
      send_all(replay, message);
    }
    const std::string end[] = {frames[0], "", big_endian(kEndOfReplay), ""};
    send_all(replay, end);
    return true;
  }
};

Result<std::unique_ptr<KvPublisher>> KvPublisher::create(const KvPublisherOptions& options) {
  std::string endpoint = options.endpoint;
  try {
    auto sockets = std::make_unique<Sockets>();
    sockets->publisher.set(zmq::sockopt::sndhwm, kHighWaterMark);
    sockets->publisher.set(zmq::sockopt::linger, 1000);
    sockets->replay.set(zmq::sockopt::linger, 0);
    sockets->publisher.bind(endpoint);
    if (!options.replay_endpoint.empty()) {
      endpoint = options.replay_endpoint;
      sockets->replay.bind(endpoint);
    }
    return std::unique_ptr<KvPublisher>(new KvPublisher(options, std::move(sockets)));
  } catch (const zmq::error_t& error) {
    return make_error(ErrorCode::kIo, "cannot publish KV events at '{}': {}", endpoint,
                      error.what());
  }
}

KvPublisher::KvPublisher(const KvPublisherOptions& options, std::unique_ptr<Sockets> sockets)
    : options_(options), sockets_(std::move(sockets)) {
  queue_.reserve(options_.max_queued_events + 1);
  taken_.reserve(options_.max_queued_events + 1);
  thread_ = std::thread([this] { run(); });
}

KvPublisher::~KvPublisher() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

void KvPublisher::on_kv_event(const KvEvent& event) {
  bool was_empty = false;
  {
    std::lock_guard lock(mutex_);
    if (overflowed_ || queue_.size() >= options_.max_queued_events) {
      overflowed_ = true;
      dropped_.add();
      return;
    }
    was_empty = queue_.empty();
    queue_.push_back(event);
  }
  if (was_empty) ready_.notify_one();
}

// What was queued, into taken_. The engine waits for no more than an exchange of two pointers.
void KvPublisher::take() {
  taken_.clear();
  taken_.swap(queue_);
  if (std::exchange(overflowed_, false)) taken_.push_back({KvEvent::Kind::kCleared, 0, {}, {}});
}

void KvPublisher::run() {
  const bool replays = !options_.replay_endpoint.empty();
  while (true) {
    bool closed = false;
    {
      std::unique_lock lock(mutex_);
      const auto has_work = [this] { return closed_ || !queue_.empty(); };
      replays ? (void)ready_.wait_for(lock, kReplayPeriod, has_work) : ready_.wait(lock, has_work);
      closed = closed_;
      take();
    }
    try {
      while (replays && sockets_->serve_replay()) continue;
      for (size_t i = 0; i < taken_.size(); i += kMaxBatchEvents) {
        send(std::span(taken_).subspan(i, std::min(kMaxBatchEvents, taken_.size() - i)));
      }
    } catch (const zmq::error_t& error) {
      LOG(kError, "KV events could not be sent: {}", error.what());
    }
    if (closed) return;
  }
}

void KvPublisher::send(std::span<const KvEvent> events) {
  const uint64_t number = sockets_->next_number++;
  std::string batch = pack_kv_batch(events, wall_clock_seconds(), options_.form);
  const std::string frames[] = {options_.topic, big_endian(number), batch};
  Sockets::send_all(sockets_->publisher, frames);
  batches_.add();
  if (options_.replay_endpoint.empty()) return;
  sockets_->kept.emplace_back(number, std::move(batch));
  if (sockets_->kept.size() > options_.max_kept_batches) sockets_->kept.pop_front();
}

}  // namespace headrace
