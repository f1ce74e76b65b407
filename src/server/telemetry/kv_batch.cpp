#include "server/telemetry/kv_batch.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

// A member of an event; a null stands for what this server does not tell (adapter ids, the tier).
using Members = std::vector<std::pair<std::string, Json>>;

Json event_of(std::string_view type, const Members& members, KvBatchForm form) {
  if (form == KvBatchForm::kArrays) {
    Json event = Json::array({type});
    for (const auto& [name, value] : members) event.push_back(value);
    return event;
  }
  Json event = {{"type", type}};
  for (const auto& [name, value] : members) event[name] = value;
  return event;
}

Json stored(std::span<const KvEvent> run, KvBatchForm form) {
  Json names = Json::array(), tokens = Json::array();
  for (const KvEvent& event : run) {
    names.push_back(event.name);
    for (const int32_t token : event.tokens) tokens.push_back(token);
  }
  const Json parent = run[0].parent ? Json(*run[0].parent) : Json();
  return event_of("BlockStored",
                  {{"block_hashes", std::move(names)},
                   {"parent_block_hash", parent},
                   {"token_ids", std::move(tokens)},
                   {"block_size", kBlockTokens},
                   {"lora_id", nullptr},
                   {"medium", nullptr},
                   {"lora_name", nullptr}},
                  form);
}

Json removed(std::span<const KvEvent> run, KvBatchForm form) {
  Json names = Json::array();
  for (const KvEvent& event : run) names.push_back(event.name);
  return event_of("BlockRemoved", {{"block_hashes", std::move(names)}, {"medium", nullptr}}, form);
}

// The events at the front that are told as one.
size_t run_length(std::span<const KvEvent> events) {
  size_t length = 1;
  const auto follows = [&](const KvEvent& event) {
    if (event.kind != events[0].kind || event.kind == KvEvent::Kind::kCleared) return false;
    return event.kind == KvEvent::Kind::kRemoved || event.parent == events[length - 1].name;
  };
  while (length < events.size() && follows(events[length])) ++length;
  return length;
}

}  // namespace

std::string pack_kv_batch(std::span<const KvEvent> events, double seconds, KvBatchForm form) {
  Json list = Json::array();
  while (!events.empty()) {
    const auto run = events.first(run_length(events));
    switch (run[0].kind) {
      case KvEvent::Kind::kStored:
        list.push_back(stored(run, form));
        break;
      case KvEvent::Kind::kRemoved:
        list.push_back(removed(run, form));
        break;
      case KvEvent::Kind::kCleared:
        list.push_back(event_of("AllBlocksCleared", {}, form));
        break;
    }
    events = events.subspan(run.size());
  }
  const Json batch =
      form == KvBatchForm::kArrays
          ? Json::array({seconds, std::move(list), 0})
          : Json{{"ts", seconds}, {"events", std::move(list)}, {"data_parallel_rank", 0}};
  std::string packed;
  Json::to_msgpack(batch, packed);
  return packed;
}

}  // namespace headrace
