// headrace bench synth: a random model of a stated shape and format.

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>

#include "bench/synth.h"
#include "cli/bench.h"

namespace headrace {
namespace {

template <typename Row>
Result<Row> find_row(std::span<const Row> rows, std::string_view what, std::string_view name) {
  std::string names;
  for (const Row& row : rows) {
    if (row.name == name) return row;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "there is no {} '{}'; there are: {}", what, name,
                    names);
}

struct SizeOption {
  const char* name;
  int64_t SynthShape::* field;
};

constexpr SizeOption kSizes[] = {
    {"--layers", &SynthShape::num_layers}, {"--hidden", &SynthShape::hidden_size},
    {"--heads", &SynthShape::num_heads},   {"--kv-heads", &SynthShape::num_kv_heads},
    {"--head-dim", &SynthShape::head_dim}, {"--intermediate", &SynthShape::intermediate_size},
    {"--vocab", &SynthShape::vocab_size},
};

}  // namespace

Status bench_synth(const Options& options, const std::vector<std::string>&) {
  SynthShape shape = TRY(find_row(synth_shapes(), "shape", options.text("--shape")));
  const SynthFormat format = TRY(find_row(synth_formats(), "format", options.text("--format")));
  for (const SizeOption& size : kSizes) {
    if (const int64_t value = options.integer(size.name); value > 0) shape.*size.field = value;
  }
  const std::string& path = options.text("--out");
  if (path.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "'bench synth' needs the file to write; give it with --out FILE.gguf");
  }
  TRY(write_synth(shape, format, static_cast<uint64_t>(options.integer("--seed")), path));
  uint64_t weights = 0, num_bytes = 0;
  for (const SynthTensor& tensor : synth_tensors(shape, format)) {
    const DTypeRow& row = dtype_row(tensor.dtype);
    num_bytes += tensor.num_bytes();
    weights += tensor.num_bytes() / row.block_bytes * row.block_elements;
  }
  if (options.flag("--json")) {
    print_row({{"kind", "synth"},
               {"file", path},
               {"shape", shape.name},
               {"format", format.name},
               {"weights", weights},
               {"tensor_bytes", num_bytes}});
  } else {
    std::printf("%s: %.1f M weights, %s of tensors\n", path.c_str(),
                static_cast<double>(weights) / 1e6, size_text(num_bytes).c_str());
  }
  return {};
}

}  // namespace headrace
