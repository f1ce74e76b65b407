#include "server/lab/event_feed.h"

#include <boost/json.hpp>

#include "base/log.h"
#include "base/strings.h"
#include "lab/forms.h"
#include "lab/views.h"
#include "server/api/dialect.h"
#include "server/api/json_writer.h"

namespace headrace::lab {
namespace {

constexpr size_t kMaxQueuedBytes = 64 * 1024;  // of a listener that does not read
constexpr int64_t kMaxEntriesAtOnce = 100;

// A number that is above 0 becomes the event's id.
std::string event(std::string_view name, int64_t id, const boost::json::value& data) {
  std::string text;
  if (id > 0) append_format(text, "id: {}\n", id);
  append_format(text, "event: {}\ndata: {}\n\n", name, valid_utf8(boost::json::serialize(data)));
  return text;
}

// The order alone: figures change with each run, and do not matter by themselves.
std::string order_in(const boost::json::object& queue) {
  std::string order =
      boost::json::serialize(queue.at("running")) + boost::json::serialize(queue.at("paused"));
  for (const auto& place : queue.at("queue").as_array()) {
    append_format(order, " {}", place.at("experiment").as_int64());
  }
  return order;
}

}  // namespace

bool EventFeed::add(std::shared_ptr<ResponseWriter> writer, int64_t after_id) {
  if (listeners_.size() >= kMaxListeners) return false;
  writer->start_stream({std::string(kServerSentEvents.content_type),
                        {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}},
                        std::string(kServerSentEvents.heartbeat)});
  listeners_.push_back({std::move(writer), after_id});
  return true;
}

void EventFeed::close() {
  for (const Listener& each : listeners_) each.writer->end_stream();
  listeners_.clear();
}

bool EventFeed::advance() {
  std::erase_if(listeners_, [](const Listener& each) { return each.writer->disconnected(); });
  if (listeners_.empty()) return false;
  const Result<bool> behind = tell_all();
  if (behind.ok()) return *behind;
  LOG(kWarning, "the laboratory cannot be read: {}", behind.error().to_string());
  const std::string told =
      event("error", 0, boost::json::object{{"message", behind.error().to_string()}});
  for (const Listener& each : listeners_) each.writer->write(told);
  close();
  return false;
}

Result<bool> EventFeed::tell_all() {
  const int64_t last_id = TRY(store_.last_log_id());
  if (last_id != last_id_) TRY(look_at_queue());
  last_id_ = last_id;
  bool behind = false;
  for (Listener& each : listeners_) {
    if (TRY(tell(each))) behind = true;
  }
  return behind;
}

Status EventFeed::look_at_queue() {
  const boost::json::object queue = TRY(queue_view(store_, effects_));
  queue_ = event("queue", 0, queue);
  std::string order = order_in(queue);
  if (order_no_ != 0 && order == order_) return {};
  order_ = std::move(order);
  ++order_no_;
  return {};
}

// Returns whether the listener has not been told all.
Result<bool> EventFeed::tell(Listener& listener) {
  while (listener.told_id < last_id_) {
    if (listener.writer->queued_bytes() >= kMaxQueuedBytes) return true;
    for (const LogEntry& entry : TRY(store_.log(listener.told_id, kMaxEntriesAtOnce))) {
      if (listener.writer->queued_bytes() >= kMaxQueuedBytes) return true;
      listener.writer->write(event("log", entry.id, to_json(entry)));
      listener.told_id = entry.id;
    }
  }
  if (listener.told_order == order_no_) return false;
  if (listener.writer->queued_bytes() >= kMaxQueuedBytes) return true;
  listener.writer->write(queue_);
  listener.told_order = order_no_;
  return false;
}

}  // namespace headrace::lab
