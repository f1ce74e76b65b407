#include "checkpoint/gguf_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/quote.h"
#include "checkpoint/byte_reader.h"
#include "checkpoint/gguf_values.h"

namespace headrace {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxKeys = 65'536;
constexpr uint64_t kMaxGgufTensors = 65'536;
constexpr uint64_t kMaxKeyBytes = 65'535;
constexpr uint64_t kMaxStringBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxArrayElements = uint64_t{4} << 20;  // over all keys of a file
constexpr uint64_t kMaxTensorNameBytes = 63;
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMinKeyBytes = 13;     // length, one character, type (an empty string is longer)
constexpr uint64_t kMinTensorBytes = 24;  // length, rank, type, offset

// Ids that ggml knows and this build does not, for the message.
struct UnreadableType {
  uint32_t gguf_id;
  std::string_view name;
  bool removed;
};
constexpr std::array<UnreadableType, 21> kUnreadableTypes = {{
    {4, "Q4_2", true},        {5, "Q4_3", true},        {9, "Q8_1", false},
    {15, "Q8_K", false},      {16, "IQ2_XXS", false},   {17, "IQ2_XS", false},
    {18, "IQ3_XXS", false},   {19, "IQ1_S", false},     {21, "IQ3_S", false},
    {22, "IQ2_S", false},     {29, "IQ1_M", false},     {31, "Q4_0_4_4", true},
    {32, "Q4_0_4_8", true},   {33, "Q4_0_8_8", true},   {34, "TQ1_0", false},
    {35, "TQ2_0", false},     {36, "IQ4_NL_4_4", true}, {37, "IQ4_NL_4_8", true},
    {38, "IQ4_NL_8_8", true}, {41, "Q1_0", false},      {42, "Q2_0", false},
}};

std::string readable_types() {
  std::string names;
  for (const DTypeRow& row : dtype_rows()) {
    if (row.gguf_id < 0) continue;
    if (!names.empty()) names += ' ';
    names += row.name;
  }
  return names;
}

struct TensorInfo {
  std::string_view name;
  TensorView view;      // data is set once the start of the data section is known
  uint64_t offset = 0;  // from the start of the data section
};

class PartReader {
 public:
  PartReader(std::span<const std::byte> bytes, std::string_view name, Metadata* metadata)
      : bytes_(bytes), name_(name), reader_(bytes, name), metadata_(metadata) {}

  Status read();
  Status add_tensors(MappedCheckpoint* checkpoint);
  std::span<const std::byte> header() const { return bytes_.first(reader_.offset()); }

 private:
  Status read_header();
  Status read_key();
  Result<MetadataValue> read_value(uint32_t type_id, const ReadWhat& what);
  Result<MetadataValue> read_array(const ReadWhat& what);
  Status check_alignment(uint32_t type_id, const MetadataValue& value);
  Status read_tensor();
  Status read_shape(TensorInfo* tensor);
  Status read_type(TensorInfo* tensor);
  Status check_ranges();

  std::span<const std::byte> bytes_;
  std::string_view name_;
  ByteReader reader_;
  Metadata* metadata_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t num_array_elements_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<TensorInfo> tensors_;
  uint64_t data_start_ = 0;
  uint64_t data_bytes_ = 0;
};

Status PartReader::read() {
  TRY(read_header());
  for (uint64_t i = 0; i < num_keys_; ++i) TRY(read_key());
  tensors_.reserve(num_tensors_);
  for (uint64_t i = 0; i < num_tensors_; ++i) TRY(read_tensor());
  // A file without tensors may end before the padding does.
  data_start_ =
      std::min<uint64_t>(CheckedSize(reader_.offset()).round_up(alignment_).value(), bytes_.size());
  data_bytes_ = bytes_.size() - data_start_;
  return check_ranges();
}

Status PartReader::read_header() {
  const auto magic = TRY(reader_.read<uint32_t>("the GGUF magic"));
  if (magic != kMagic) {
    return reader_.corrupt("is no GGUF file: it starts with 0x{:08x}, needed is 0x{:08x} ('GGUF')",
                           magic, kMagic);
  }
  const auto version = TRY(reader_.read<uint32_t>("the GGUF version"));
  if (version != 0 && (version & 0xFFFF) == 0) {
    return make_error(ErrorCode::kUnsupported,
                      "{}: is a big-endian GGUF file, only little-endian files are read", name_);
  }
  if (version != 2 && version != 3) {
    Error error = make_error(ErrorCode::kUnsupported,
                             "{}: has GGUF version {}, versions 2 and 3 are read", name_, version);
    error.hint = "convert the model again with a current converter";
    return error;
  }
  num_tensors_ = TRY(reader_.read<uint64_t>("the tensor count"));
  num_keys_ = TRY(reader_.read<uint64_t>("the key count"));
  const uint64_t fitting_keys = std::min(kMaxKeys, reader_.bytes_left() / kMinKeyBytes);
  if (num_keys_ > fitting_keys) {
    return reader_.corrupt("the key count at byte 16 is {}, at most {} fit in the {} bytes left",
                           num_keys_, fitting_keys, reader_.bytes_left());
  }
  const uint64_t bytes_for_tensors = reader_.bytes_left() - num_keys_ * kMinKeyBytes;
  const uint64_t fitting_tensors = std::min(kMaxGgufTensors, bytes_for_tensors / kMinTensorBytes);
  if (num_tensors_ > fitting_tensors) {
    return reader_.corrupt("the tensor count at byte 8 is {}, at most {} fit in the {} bytes left",
                           num_tensors_, fitting_tensors, bytes_for_tensors);
  }
  return {};
}

Status PartReader::read_key() {
  const size_t start = reader_.offset();
  const auto key = TRY(reader_.read_text(kMaxKeyBytes, "a key name"));
  if (key.empty()) return reader_.corrupt("the key at byte {} has an empty name", start);
  const ReadWhat what("key", key);
  const auto type_id = TRY(reader_.read<uint32_t>(what));
  MetadataValue value = TRY(read_value(type_id, what));
  if (key == "general.alignment") TRY(check_alignment(type_id, value));
  if (!metadata_->insert(std::string(key), std::move(value))) {
    return reader_.corrupt("{} at byte {} occurs twice", what.to_string(), start);
  }
  return {};
}

Result<MetadataValue> PartReader::read_value(uint32_t type_id, const ReadWhat& what) {
  const size_t start = reader_.offset();
  const GgufValueType* type = find_gguf_value_type(type_id);
  if (type == nullptr) {
    return reader_.corrupt("{} has value type {} at byte {}, types 0 to 12 exist", what.to_string(),
                           type_id, start - sizeof(uint32_t));
  }
  if (type_id == kGgufTypeArray) return read_array(what);
  if (type_id == kGgufTypeString) {
    return MetadataValue{TRY(reader_.read_text(kMaxStringBytes, what))};
  }
  return type->read_scalar(TRY(reader_.take(type->num_bytes, what)).data());
}

Result<MetadataValue> PartReader::read_array(const ReadWhat& what) {
  const size_t start = reader_.offset();
  const auto type_id = TRY(reader_.read<uint32_t>(what));
  const auto count = TRY(reader_.read<uint64_t>(what));
  const GgufValueType* type = find_gguf_value_type(type_id);
  if (type == nullptr || type_id == kGgufTypeArray) {
    return reader_.corrupt(
        "{} is an array of value type {} at byte {}, needed is a scalar or string",
        what.to_string(), type_id, start);
  }
  const bool texts = type_id == kGgufTypeString;
  const uint64_t min_bytes = texts ? sizeof(uint64_t) : type->num_bytes;
  const uint64_t fitting =
      std::min(kMaxArrayElements - num_array_elements_, uint64_t{reader_.bytes_left()} / min_bytes);
  if (count > fitting) {
    return reader_.corrupt(
        "{} is an array of {} elements at byte {}, at most {} fit in the {} bytes "
        "left and the limit of {} per file",
        what.to_string(), count, start, fitting, reader_.bytes_left(), kMaxArrayElements);
  }
  num_array_elements_ += count;
  if (!texts) {
    const auto source = TRY(reader_.take(count * type->num_bytes, what));
    return MetadataValue{type->read_array(source.data(), count)};
  }
  std::vector<std::string_view> elements(count);
  for (std::string_view& element : elements) {
    element = TRY(reader_.read_text(kMaxStringBytes, what));
  }
  return MetadataValue{MetadataValue::Array(std::move(elements))};
}

Status PartReader::check_alignment(uint32_t type_id, const MetadataValue& value) {
  if (type_id != kGgufTypeU32) {
    const GgufValueType* type = find_gguf_value_type(type_id);
    return reader_.corrupt("key 'general.alignment' has type {}, needed is u32", type->name);
  }
  alignment_ = static_cast<uint64_t>(std::get<int64_t>(value.value));
  if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
    return reader_.corrupt("key 'general.alignment' is {}, needed is a power of two up to {}",
                           alignment_, kMaxAlignment);
  }
  return {};
}

Status PartReader::read_tensor() {
  const size_t start = reader_.offset();
  TensorInfo tensor;
  tensor.name = TRY(reader_.read_text(kMaxTensorNameBytes, "a tensor name"));
  if (tensor.name.empty() || tensor.name.find('\0') != std::string_view::npos) {
    return reader_.corrupt("the tensor at byte {} is named {}, needed is a name without NUL", start,
                           quote(tensor.name));
  }
  TRY(read_shape(&tensor));
  TRY(read_type(&tensor));
  tensor.offset = TRY(reader_.read<uint64_t>(ReadWhat("tensor", tensor.name)));
  if (tensor.offset % alignment_ != 0) {
    return reader_.corrupt("tensor {} has offset {}, needed is a multiple of the alignment {}",
                           quote(tensor.name), tensor.offset, alignment_);
  }
  tensors_.push_back(tensor);
  return {};
}

Status PartReader::read_shape(TensorInfo* tensor) {
  const ReadWhat what("tensor", tensor->name);
  const size_t start = reader_.offset();
  const auto rank = TRY(reader_.read<uint32_t>(what));
  if (rank > kMaxRank) {
    return reader_.corrupt("{} has {} dimensions at byte {}, at most {} are allowed",
                           what.to_string(), rank, start, kMaxRank);
  }
  tensor->view.rank = static_cast<int>(rank);
  CheckedSize num_elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = TRY(reader_.read<uint64_t>(what));
    num_elements *= std::max<uint64_t>(size, 1);  // an empty tensor's other sizes must multiply too
    if (size > uint64_t{INT64_MAX} || !num_elements.at_most(uint64_t{INT64_MAX})) {
      return reader_.corrupt(
          "{} has dimension {} of size {} at byte {}, the product of all must "
          "fit 63 bits",
          what.to_string(), i, size, reader_.offset() - sizeof(uint64_t));
    }
    tensor->view.shape[rank - 1 - i] = static_cast<int64_t>(size);  // the file stores fastest first
  }
  return {};
}

Status PartReader::read_type(TensorInfo* tensor) {
  const ReadWhat what("tensor", tensor->name);
  const auto type_id = TRY(reader_.read<uint32_t>(what));
  const DTypeRow* row = find_dtype_by_gguf_id(type_id);
  if (row == nullptr) {
    Error error = make_error(ErrorCode::kUnsupported, "{}: {} has type id {}", name_,
                             what.to_string(), type_id);
    error.hint = fmt::format("types that can be read: {}", readable_types());
    for (const UnreadableType& unreadable : kUnreadableTypes) {
      if (unreadable.gguf_id != type_id) continue;
      error.message += fmt::format(" ({})", unreadable.name);
      if (unreadable.removed)
        error.hint = "this type was removed from GGUF: convert the model again";
    }
    return error;
  }
  TensorView& view = tensor->view;
  view.dtype = row->dtype;
  const int64_t fastest = view.rank == 0 ? 1 : view.dim(view.rank - 1);
  if (fastest % row->block_elements != 0) {
    return reader_.corrupt("{} has rows of {} elements, {} needs a multiple of {}",
                           what.to_string(), fastest, row->name, row->block_elements);
  }
  const uint64_t num_blocks = static_cast<uint64_t>(view.num_elements()) / row->block_elements;
  const CheckedSize num_bytes = CheckedSize(num_blocks) * row->block_bytes;
  if (!num_bytes.at_most(bytes_.size())) {
    return reader_.corrupt("{} {} of {} is larger than the file of {} bytes", what.to_string(),
                           view.shape_string(), row->name, bytes_.size());
  }
  view.num_bytes = num_bytes.value();
  return {};
}

// Every tensor lies in the data section, and no two share a byte.
Status PartReader::check_ranges() {
  std::vector<const TensorInfo*> sorted;
  for (const TensorInfo& tensor : tensors_) {
    const CheckedSize end = CheckedSize(tensor.offset) + tensor.view.num_bytes;
    if (!end.at_most(data_bytes_)) {
      Error error = reader_.corrupt(
          "tensor {} needs {} bytes at offset {}, the data section at byte {} has {}",
          quote(tensor.name), tensor.view.num_bytes, tensor.offset, data_start_, data_bytes_);
      error.hint = "the file is probably truncated: fetch it again";
      return error;
    }
    if (tensor.view.num_bytes > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const TensorInfo& before = *sorted[i - 1];
    const TensorInfo& after = *sorted[i];
    if (before.offset + before.view.num_bytes > after.offset) {
      return reader_.corrupt("tensors {} (offset {}, {} bytes) and {} (offset {}) overlap",
                             quote(before.name), before.offset, before.view.num_bytes,
                             quote(after.name), after.offset);
    }
  }
  return {};
}

Status PartReader::add_tensors(MappedCheckpoint* checkpoint) {
  for (TensorInfo& tensor : tensors_) {
    tensor.view.data = bytes_.data() + data_start_ + tensor.offset;
    if (!checkpoint->add_tensor(std::string(tensor.name), tensor.view)) {
      return reader_.corrupt("tensor {} occurs twice", quote(tensor.name));
    }
  }
  return {};
}

}  // namespace

Status read_gguf_part(std::span<const std::byte> bytes, std::string_view name, Metadata* metadata,
                      MappedCheckpoint* checkpoint) {
  PartReader reader(bytes, name, metadata);
  TRY(reader.read());
  TRY(reader.add_tensors(checkpoint));
  checkpoint->add_header(reader.header(), bytes.size());
  return {};
}

}  // namespace headrace
