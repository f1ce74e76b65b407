// AdapterTargets: which outputs of which packed weight a module of the published network is.
//
// Adapters name modules as the network's authors do (the names of safetensors files), whatever file
// the weights were read from. A module may be a part of a packed weight (q of q, k and v), a whole
// one, several (queries and gates in turns), or an expert.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/config.h"
#include "model/weights.h"

namespace headrace {

// Outputs [first_output, first_output + num_outputs) of a weight, which are rows of the module.
struct AdapterTarget {
  const PackedWeight* weight = nullptr;
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  std::vector<int32_t> rows = {};    // output i is row rows[i] of the module; empty: they are equal
  DevicePtr<const float> bias = {};  // [num_outputs] that the weight has, or null
  bool of_table = false;             // the module looks rows up

  int64_t row(int64_t output) const {
    return rows.empty() ? output : rows[static_cast<size_t>(output)];
  }
};

struct AdapterModule {
  int64_t num_outputs = 0;  // of the module: rows of its weight
  int64_t num_inputs = 0;
  std::vector<AdapterTarget> targets;
};

class AdapterTargets {
 public:
  AdapterTargets(const ModelConfig& config, const Weights& weights);

  // Null: the network has no such module, or none that can be adapted.
  const AdapterModule* find(std::string_view name) const;
  // The experts of a module that holds those of a layer in one tensor per projection: all of the
  // one whose weights are [num_outputs, num_inputs]. None: no such module.
  std::vector<const AdapterModule*> experts(std::string_view name, int64_t num_outputs,
                                            int64_t num_inputs) const;

 private:
  struct Stack {
    std::vector<AdapterModule> gate_up, down;
  };

  void add_role(const RoleSlot& slot);
  void add_parts(const RoleSlot& slot, const LayerConfig& layer, int64_t expert);
  void add_stack(const RoleSlot& slot, const LayerConfig& layer);
  void add_embedding();
  AdapterModule whole(const RoleSlot& slot, const LayerConfig& layer, int64_t expert) const;
  const RoleWeight& role_weight(const RoleSlot& slot) const;
  std::vector<std::string> prefixes(const RoleSlot& slot) const;
  void add(const RoleSlot& slot, std::string_view name, const AdapterModule& module);

  const ModelConfig& config_;
  const Weights& weights_;
  std::map<std::string, AdapterModule, std::less<>> modules_;
  std::map<std::string, Stack, std::less<>> stacks_;
};

}  // namespace headrace
