#include "server/served_model.h"

#include <algorithm>

namespace headrace {
namespace {

std::vector<std::string> all_names(const ModelInfo& info, std::vector<std::string> aliases) {
  aliases.insert(aliases.begin(), info.name);
  return aliases;
}

}  // namespace

ServedModel::ServedModel(Engine& given_engine, const TextBundle& bundle, ModelInfo given_info,
                         std::vector<std::string> aliases, std::shared_ptr<void> given_owner,
                         AdapterRegistry::Make make_adapter)
    : owner(std::move(given_owner)),
      engine(given_engine),
      text(bundle),
      info(std::move(given_info)),
      names(all_names(info, std::move(aliases))),
      adapters(std::move(make_adapter)),
      serving{text, info, names, engine.max_context(), &adapters} {
  CHECK(text.tokenizer != nullptr, "{} has no tokenizer: a server needs one", info.name);
}

bool ServedModel::is_stalled(std::chrono::milliseconds limit) const {
  if (sessions.live_responses == 0) return false;
  const EngineSnapshot snapshot = engine.snapshot();
  if (snapshot.num_running + snapshot.num_waiting == 0) return false;
  const TimeUs progress = std::max(snapshot.last_step_us, sessions.busy_since.load());
  return now_us() - progress > limit.count() * 1000;
}

}  // namespace headrace
