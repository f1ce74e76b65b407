#include "checkpoint/quantisation.h"

#include <array>
#include <span>
#include <string>

#include "base/json.h"
#include "base/quote.h"

namespace headrace {
namespace {

namespace json = boost::json;

Error unsupported(std::string_view what, std::string_view found, std::string_view supported) {
  return make_error(ErrorCode::kUnsupported, "{} {} is not supported; supported: {}", what,
                    quote(found), supported);
}

// Text of a member, or `fallback` if it is absent or no string.
std::string text_or(const json::value& object, std::string_view key, std::string_view fallback) {
  const json::value* member = json_member(&object, key);
  return std::string(
      member != nullptr && member->is_string() ? std::string_view(member->get_string()) : fallback);
}

bool is_one_of(std::string_view text, std::span<const std::string_view> choices) {
  for (const std::string_view choice : choices) {
    if (text == choice) return true;
  }
  return false;
}

void add_group_size(const json::value* holder, Quantisation* quantisation) {
  const json::value* size = json_member(holder, "group_size");
  if (size != nullptr && size->is_int64()) quantisation->group_sizes.push_back(size->get_int64());
}

Result<Quantisation> read_gptq(const json::value& config) {
  const std::string format = text_or(config, "checkpoint_format", "gptq");
  constexpr std::array<std::string_view, 2> kFormats = {"gptq", "gptq_v2"};
  if (!is_one_of(format, kFormats)) {
    return unsupported("GPTQ checkpoint_format", format, "gptq, gptq_v2");
  }
  Quantisation quantisation{.method = QuantMethod::kGptq};
  quantisation.zero_is_stored_minus_one = format == "gptq";
  add_group_size(&config, &quantisation);
  return quantisation;
}

Result<Quantisation> read_awq(const json::value& config) {
  const std::string version = text_or(config, "version", "gemm");
  if (version != "gemm" && version != "GEMM") return unsupported("AWQ version", version, "gemm");
  Quantisation quantisation{.method = QuantMethod::kAwq};
  add_group_size(&config, &quantisation);
  return quantisation;
}

Status check_ct_format(const json::value& holder) {
  constexpr std::array<std::string_view, 8> kFormats = {
      "dense",           "pack-quantized",  "int-quantized",        "float-quantized",
      "naive-quantized", "mixed-precision", "mxfp4-pack-quantized", "nvfp4-pack-quantized"};
  const std::string format = text_or(holder, "format", "dense");
  if (is_one_of(format, kFormats)) return {};
  return unsupported("compressed-tensors format", format,
                     "pack-quantized, int-quantized, float-quantized, mxfp4-pack-quantized, "
                     "nvfp4-pack-quantized");
}

// block_structure [outputs, inputs] of a config group's weights, or weight_block_size of fp8.
Status read_block_size(const json::value* blocks, Quantisation* quantisation) {
  if (blocks == nullptr || blocks->is_null()) return {};
  const json::array* sizes = blocks->if_array();
  const bool pair = sizes != nullptr && sizes->size() == 2 && (*sizes)[0].is_int64() &&
                    (*sizes)[1].is_int64() && (*sizes)[0].get_int64() > 0 &&
                    (*sizes)[1].get_int64() > 0;
  if (!pair) {
    return make_error(ErrorCode::kCorrupt,
                      "quantization_config: the weight block size is no pair of positive integers");
  }
  quantisation->block_outputs = (*sizes)[0].get_int64();
  quantisation->block_inputs = (*sizes)[1].get_int64();
  return {};
}

Result<Quantisation> read_compressed_tensors(const json::value& config) {
  Quantisation quantisation{.method = QuantMethod::kCompressedTensors};
  TRY(check_ct_format(config));
  const json::value* sparse = json_member(&config, "sparsity_config");
  const std::string sparsity = sparse == nullptr ? "dense" : text_or(*sparse, "format", "dense");
  if (sparsity != "dense") return unsupported("sparsity format", sparsity, "dense");
  const json::value* transforms = json_member(&config, "transform_config");
  if (transforms != nullptr && transforms->is_object() && !transforms->get_object().empty()) {
    return unsupported("compressed-tensors field", "transform_config",
                       "weights without transforms");
  }
  const json::value* groups = json_member(&config, "config_groups");
  if (groups == nullptr || !groups->is_object()) return quantisation;
  for (const auto& member : groups->get_object()) {
    TRY(check_ct_format(member.value()));
    const json::value* weights = json_member(&member.value(), "weights");
    add_group_size(weights, &quantisation);
    TRY(read_block_size(json_member(weights, "block_structure"), &quantisation));
  }
  return quantisation;
}

Result<Quantisation> read_fp8(const json::value& config) {
  Quantisation quantisation{.method = QuantMethod::kFp8};
  TRY(read_block_size(json_member(&config, "weight_block_size"), &quantisation));
  return quantisation;
}

Result<Quantisation> read_mxfp4(const json::value&) {
  return Quantisation{.method = QuantMethod::kMxfp4};
}

struct MethodRow {
  std::string_view name;
  Result<Quantisation> (*read)(const json::value& config);
};

constexpr std::array<MethodRow, 5> kMethods = {{
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"compressed-tensors", read_compressed_tensors},
    {"fp8", read_fp8},
    {"mxfp4", read_mxfp4},
}};

Result<Quantisation> read_method(const json::value& config, std::string_view default_method) {
  const std::string method = text_or(config, "quant_method", default_method);
  for (const MethodRow& row : kMethods) {
    if (row.name == method) return row.read(config);
  }
  return unsupported("quantization method", method, "gptq, awq, compressed-tensors, fp8, mxfp4");
}

// The quantisation object of a config, or null.
const json::value* find_quantisation(const json::value& config) {
  for (const json::value* holder :
       std::array<const json::value*, 2>{&config, json_member(&config, "text_config")}) {
    for (const std::string_view key : {"quantization_config", "compression_config"}) {
      const json::value* found = json_member(holder, key);
      if (found != nullptr && found->is_object()) return found;
    }
  }
  return nullptr;
}

}  // namespace

Result<Quantisation> read_quantisation(const Checkpoint& checkpoint) {
  if (const auto text = checkpoint.sidecar("config.json")) {
    const json::value config = TRY(parse_json(*text, "config.json"));
    if (const json::value* found = find_quantisation(config)) {
      return read_method(*found, "compressed-tensors");  // old compression_config has no method
    }
  }
  if (const auto text = checkpoint.sidecar("quantize_config.json")) {
    const json::value config = TRY(parse_json(*text, "quantize_config.json"));
    return read_method(config, "gptq");
  }
  return Quantisation{};
}

}  // namespace headrace
