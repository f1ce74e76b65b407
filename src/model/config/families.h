// The table of families, and names that all of them share.
//
// config_json.cpp and config_gguf.cpp read any file through a row of it, and what its tensors are
// called is in roles.h, but for the norms, which are called after the block form. A family that
// fits the existing columns is a new row and a golden test.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/family.h"
#include "model/config/json_object.h"

namespace headrace {

std::span<const Family> families();

// By the table's own name; a CHECK fails for an unknown one.
const Family& family_named(std::string_view name);

// Null if there is no such family. A GGUF architecture may serve several families: those with
// experts get the files that state experts, those with a window rule those that state a window.
const Family* find_family_by_model_type(std::string_view model_type);
// The same where several rows differ in what config.json says (FormRow::when).
Result<const Family*> find_family(std::string_view model_type, const JsonObject& json);
// file: what else it says tells rows apart (GgufRow::parallel, tensor); null: nothing does.
const Family* find_family_by_gguf(std::string_view architecture, bool has_window, bool has_experts,
                                  const Checkpoint* file = nullptr);

// Why a model of this type cannot run: what it needs that this version lacks if the type is known,
// else the nearest family by name and by tensor names and what the tensors show.
Error unknown_family_error(std::string_view model_type, const Checkpoint& checkpoint);

// The kind of layer that a tensor name gives away ("latent attention"), or empty.
std::string_view feature_of_tensor(std::string_view tensor_name);

// Before a layer's number in the names of its tensors; of most families without one.
std::string_view layer_prefix(CheckpointKind kind, const Family* family = nullptr);

// Prefixes that wrap the tensors of a checkpoint, most common first.
std::span<const NamePrefix> name_prefixes(CheckpointKind kind, const Family* family = nullptr);

}  // namespace headrace
