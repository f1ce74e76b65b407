#include "base/handover.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

thread_local Handover* innermost = nullptr;

}  // namespace

Handover::Handover() : outer_(std::exchange(innermost, this)) {}

Handover::~Handover() {
  finish();
  innermost = outer_;
}

Handover* Handover::current() { return innermost; }

void Handover::add(std::shared_ptr<HandoverPlace> place, std::function<void()> task) {
  auto load = std::find_if(loads_.begin(), loads_.end(),
                           [&](const Load& each) { return each.place == place; });
  if (load == loads_.end()) load = loads_.insert(load, Load{std::move(place), {}});
  load->tasks.push_back(std::move(task));
}

int Handover::finish() {
  std::vector<Load> loads;
  loads.swap(loads_);
  for (Load& load : loads) load.place->take(std::move(load.tasks));
  return static_cast<int>(loads.size());
}

}  // namespace headrace
