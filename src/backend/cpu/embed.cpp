#include "backend/cpu/embed.h"

#include <algorithm>

namespace headrace::cpu {
namespace {

// The row of a table: visit(k, value).
template <typename Visit>
void visit_row(const CpuWeight& table, int64_t row, float* room, const Visit& visit) {
  const int64_t width = table.num_inputs();
  const Segment* segment = table.segments().data();
  while (row >= segment->first_output + segment->num_outputs) ++segment;
  row -= segment->first_output;
  const uint8_t* panel = segment->data + static_cast<size_t>(row / kPanel) * segment->panel_bytes;
  for (int64_t first = 0; first < width; first += kSliceInputs) {
    const int64_t count = std::min<int64_t>(kSliceInputs, width - first);
    segment->unpack({panel, width, first, count, room});
    for (int64_t k = 0; k < count; ++k) visit(first + k, room[k * kPanel + row % kPanel]);
  }
}

// out += scale * what the adapter adds to row `id`.
void add_row(const CpuContext& context, const CpuDelta& delta, int64_t id, float scale, float* room,
             std::span<float> out) {
  for (const DeltaPart& part : delta.parts) {
    for (int64_t j = 0; j < part.rank; ++j) {
      room[j] = scale * part.low_factors[j] * part.columns[id * part.rank + j];
    }
    ExpandArgs args{};
    args.low = room;
    args.num_rows = 1;
    args.b = part.b;
    args.sums = out.data();
    args.num_outputs = std::ssize(out);
    context.kernels.expand->function.expand(args);
  }
}

}  // namespace

void run_embed(const CpuContext& context, const CpuWeight& table, std::span<const int32_t> ids,
               float scale, const float* addend, float* out) {
  const int64_t width = table.num_inputs();
  context.team.run(static_cast<int64_t>(ids.size()), [&](int64_t item, int member) {
    float* room = context.workspace.member(member).matmul;
    const CpuAdapter* adapter = context.adapters.of_row(item);
    const CpuDelta* delta = adapter == nullptr ? nullptr : adapter->of_table(table);
    const bool replaced = delta != nullptr && delta->replacement != nullptr;
    const int64_t id = ids[static_cast<size_t>(item)];
    visit_row(replaced ? *delta->replacement : table, id, room, [&](int64_t k, float value) {
      value *= scale;
      const int64_t at = item * width + k;
      out[at] = addend == nullptr ? value : addend[at] + value;
    });
    if (delta == nullptr) return;
    add_row(context, *delta, id, scale, room, {out + item * width, static_cast<size_t>(width)});
  });
}

}  // namespace headrace::cpu
