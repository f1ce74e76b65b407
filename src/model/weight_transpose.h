// Transposes of weights that a network uses against the order of their file (the keys of latent
// attention are read from their outputs to their inputs).
//
// A layout keeps codes along a row, so a transpose is made of numbers: in the file's own dense
// type, which they had, or in float32.
#pragma once

#include <cstddef>
#include <span>

#include "checkpoint/weight_view.h"

namespace headrace {

// What the transpose of a weight will be, without its data.
WeightView transposed_view(const WeightView& weight);
// Its data, transposed_view(weight).values.num_bytes of it. Only for validated weights.
void transpose_weight(const WeightView& weight, std::span<std::byte> out);

}  // namespace headrace
