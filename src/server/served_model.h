// ServedModel: one loaded model that requests can ask for: its engine, its text side, its names and
// what is counted of its answers.
//
// Shared: whoever works with the model (a session, a handler) holds it, so that a model can be
// taken out of service while requests still use it. The last holder must not be a thread of its own
// engine, so the registry (model_registry.h) keeps it until nobody else does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/api/adapter_registry.h"
#include "server/api/bundle.h"
#include "server/api/serving_model.h"
#include "server/api/session.h"

namespace headrace {

struct ServedModel {
  // engine and text are parts of owner, or outlive the model where there is none; so is what
  // make_adapter needs. Without it the model takes no adapters.
  ServedModel(Engine& engine, const TextBundle& text, ModelInfo info,
              std::vector<std::string> aliases = {}, std::shared_ptr<void> owner = nullptr,
              AdapterRegistry::Make make_adapter = {});

  const std::shared_ptr<void> owner;  // first: it goes last
  Engine& engine;
  const TextBundle& text;
  const ModelInfo info;
  const std::vector<std::string> names;  // its own, then its aliases
  mutable AdapterRegistry adapters;
  const ServingModel serving;
  mutable SessionCounters sessions;

  // Work, but no step since it began or for so long: the engine hangs.
  bool is_stalled(std::chrono::milliseconds limit) const;
};

using ModelPtr = std::shared_ptr<const ServedModel>;

}  // namespace headrace
