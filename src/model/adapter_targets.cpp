#include "model/adapter_targets.h"

#include <algorithm>
#include <utility>

#include "model/config/families.h"
#include "model/config/roles.h"
#include "model/row_orders.h"

namespace headrace {
namespace {

const LayerConfig kNoLayerConfig;

// "mlp.experts.{}.gate_proj" with the number of an expert.
std::string numbered(std::string_view name, int64_t expert) {
  std::string text(name);
  if (const size_t at = text.find("{}"); at != std::string::npos) {
    text.replace(at, 2, std::to_string(expert));
  }
  return text;
}

// What holds the experts of all: "mlp.experts" of "mlp.experts.{}.gate_proj" and of
// "mlp.experts.down_proj".
std::string_view stack_of(std::string_view name) {
  const size_t numbers = name.find(".{}");
  return name.substr(0, numbers != name.npos ? numbers : name.rfind('.'));
}

}  // namespace

AdapterTargets::AdapterTargets(const ModelConfig& config, const Weights& weights)
    : config_(config), weights_(weights) {
  for (const RoleSlot& slot : role_slots(config)) add_role(slot);
  add_embedding();
}

const AdapterModule* AdapterTargets::find(std::string_view name) const {
  const auto found = modules_.find(name);
  return found == modules_.end() ? nullptr : &found->second;
}

std::vector<const AdapterModule*> AdapterTargets::experts(std::string_view name,
                                                          int64_t num_outputs,
                                                          int64_t num_inputs) const {
  const auto found = stacks_.find(name);
  std::vector<const AdapterModule*> experts;
  if (found == stacks_.end()) return experts;
  for (const std::vector<AdapterModule>* stack : {&found->second.gate_up, &found->second.down}) {
    for (const AdapterModule& module : *stack) {
      if (module.num_outputs == num_outputs && module.num_inputs == num_inputs) {
        experts.push_back(&module);
      }
    }
    if (!experts.empty()) break;
  }
  return experts;
}

const RoleWeight& AdapterTargets::role_weight(const RoleSlot& slot) const {
  if (slot.layer == kNoLayer) return weights_.network[slot.row->role];
  return weights_.layers[static_cast<size_t>(slot.layer)][slot.row->role];
}

// Parts of a weight whose tensors are small heads of something else cannot be adapted.
void AdapterTargets::add_role(const RoleSlot& slot) {
  const RoleRow& row = *slot.row;
  if (row.form != RoleForm::kWeight || row.shared.stride != nullptr) return;
  if (role_weight(slot).weight == nullptr || row.role == Role::kEmbedding) return;
  const LayerConfig& layer =
      slot.layer == kNoLayer ? kNoLayerConfig : config_.layers[static_cast<size_t>(slot.layer)];
  const int64_t num_experts = role_weight(slot).weight->num_experts();
  for (int64_t expert = 0; expert < num_experts; ++expert) add_parts(slot, layer, expert);
  if (row.experts != nullptr) add_stack(slot, layer);
}

std::vector<std::string> AdapterTargets::prefixes(const RoleSlot& slot) const {
  const Family& family = family_named(config_.family);
  constexpr CheckpointKind kKind = CheckpointKind::kSafetensors;
  std::vector<std::string> prefixes;
  for (const NamePrefix& prefix : name_prefixes(kKind, &family)) {
    switch (slot.row->place) {
      case RolePlace::kBody:
        prefixes.emplace_back(prefix.body);
        break;
      case RolePlace::kHead:
        prefixes.emplace_back(prefix.head);
        break;
      case RolePlace::kLayer:
        prefixes.push_back(
            fmt::format("{}{}{}.", prefix.body, layer_prefix(kKind, &family), slot.layer));
        break;
      case RolePlace::kPrediction:
        break;  // a network that takes adapters is without its head
    }
  }
  return prefixes;
}

void AdapterTargets::add(const RoleSlot& slot, std::string_view name, const AdapterModule& module) {
  for (const std::string& prefix : prefixes(slot)) {
    AdapterModule& own = modules_[prefix + std::string(name)];
    own.num_outputs = module.num_outputs;
    own.num_inputs = module.num_inputs;
    for (const AdapterTarget& target : module.targets) {
      const auto is_same = [&](const AdapterTarget& other) {
        return other.weight == target.weight && other.first_output == target.first_output;
      };
      if (std::none_of(own.targets.begin(), own.targets.end(), is_same)) {
        own.targets.push_back(target);
      }
    }
  }
}

// All parts of a weight in one tensor, as published.
AdapterModule AdapterTargets::whole(const RoleSlot& slot, const LayerConfig& layer,
                                    int64_t expert) const {
  const RoleWeight& role = role_weight(slot);
  const PackedWeight& weight = role.weight->expert(expert);
  AdapterTarget target{&weight, 0, weight.num_outputs(), {}, {}, false};
  if (role.vector && slot.row->experts == nullptr) target.bias = role.vector;
  const Family& family = family_named(config_.family);
  if (slot.row->role == Role::kQkv) append_qkv_order(family.form.qkv_order, layer, &target.rows);
  if (slot.row->experts != nullptr && config_.interleaved_experts) {
    append_alternating(weight.num_outputs(), &target.rows);
  }
  return {weight.num_outputs(), weight.num_inputs(), {std::move(target)}};
}

void AdapterTargets::add_parts(const RoleSlot& slot, const LayerConfig& layer, int64_t expert) {
  const RoleRow& row = *slot.row;
  const RoleWeight& role = role_weight(slot);
  const PackedWeight& weight = role.weight->expert(expert);
  int64_t first = 0;
  for (const PartRow& part : row.used_parts()) {
    const int64_t outputs = part.outputs(config_, layer);
    if (outputs == 0) continue;
    AdapterTarget target{&weight, first, outputs, {}, {}, false};
    if (role.vector && row.experts == nullptr) target.bias = role.vector + first;
    int64_t stored = outputs;
    if (part.stored_outputs != nullptr && part.stored_outputs(config_, layer) != outputs) {
      stored = part.stored_outputs(config_, layer);
      for (int64_t i = 0; i < outputs; ++i) {
        target.rows.push_back(static_cast<int32_t>(part.stored_row(layer, i)));
      }
    }
    const AdapterModule module{stored, weight.num_inputs(), {std::move(target)}};
    const RoleNames names = role_names(config_, row, part);
    for (const std::string_view name : names.in(CheckpointKind::kSafetensors)) {
      add(slot, numbered(name, expert), module);
    }
    first += outputs;
  }
  if (row.experts != nullptr) return;
  const RoleNames fused = fused_names(config_, row);
  for (const std::string_view name : fused.in(CheckpointKind::kSafetensors)) {
    add(slot, name, whole(slot, layer, expert));
  }
}

void AdapterTargets::add_stack(const RoleSlot& slot, const LayerConfig& layer) {
  const RoleRow& row = *slot.row;
  if (row.role != Role::kExpertGateUp && row.role != Role::kExpertDown) return;
  std::vector<AdapterModule> modules;
  for (int64_t e = 0; e < role_weight(slot).weight->num_experts(); ++e) {
    modules.push_back(whole(slot, layer, e));
    if (row.role == Role::kExpertDown) modules.back().targets[0].rows.clear();
  }
  std::vector<std::string_view> names = {"mlp.experts"};
  const RoleNames parts = role_names(config_, row, row.parts[0]), fused = fused_names(config_, row);
  for (const RoleNames& all : {parts, fused}) {
    for (const std::string_view name : all.in(CheckpointKind::kSafetensors)) {
      names.push_back(stack_of(name));
    }
  }
  for (const std::string& prefix : prefixes(slot)) {
    for (const std::string_view name : names) {
      Stack& stack = stacks_[prefix + std::string(name)];
      (row.role == Role::kExpertDown ? stack.down : stack.gate_up) = modules;
    }
  }
}

// The table, and the head that is the same weight where it has none of its own.
void AdapterTargets::add_embedding() {
  const PackedWeight& table = weights_.network.weight(Role::kEmbedding);
  const auto module = [&](bool of_table) {
    AdapterTarget target{&table, 0, table.num_outputs(), {}, {}, of_table};
    return AdapterModule{table.num_outputs(), table.num_inputs(), {std::move(target)}};
  };
  const auto add_names = [&](Role role, bool of_table) {
    const RoleRow& row = role_row(role);
    const RoleNames names = role_names(config_, row, row.parts[0]);
    for (const std::string_view name : names.in(CheckpointKind::kSafetensors)) {
      add({kNoLayer, &row}, name, module(of_table));
    }
  };
  add_names(Role::kEmbedding, true);
  if (weights_.network[Role::kHead].weight == nullptr) add_names(Role::kHead, false);
}

}  // namespace headrace
