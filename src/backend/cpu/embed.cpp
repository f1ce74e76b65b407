#include "backend/cpu/embed.h"

#include <algorithm>

namespace headrace::cpu {

void run_embed(const CpuContext& context, const CpuWeight& table, std::span<const int32_t> ids,
               float scale, const float* addend, float* out) {
  const int64_t width = table.num_inputs();
  context.team.run(static_cast<int64_t>(ids.size()), [&](int64_t item, int member) {
    float* values = context.workspace.member(member).matmul;
    int64_t row = ids[static_cast<size_t>(item)];
    const Segment* segment = table.segments().data();
    while (row >= segment->first_output + segment->num_outputs) ++segment;
    row -= segment->first_output;
    const uint8_t* panel = segment->data + static_cast<size_t>(row / kPanel) * segment->panel_bytes;
    for (int64_t first = 0; first < width; first += kSliceInputs) {
      const int64_t count = std::min<int64_t>(kSliceInputs, width - first);
      segment->unpack({panel, width, first, count, values});
      for (int64_t k = 0; k < count; ++k) {
        const int64_t at = item * width + first + k;
        const float value = scale * values[k * kPanel + row % kPanel];
        out[at] = addend == nullptr ? value : addend[at] + value;
      }
    }
  });
}

}  // namespace headrace::cpu
