#include "checkpoint/safetensors_header.h"

#include <boost/json/basic_parser_impl.hpp>
#include <exception>
#include <optional>
#include <unordered_set>

#include "base/quote.h"

namespace headrace {
namespace {

namespace json = boost::json;

constexpr size_t kMaxSafetensors = 98'304;
constexpr size_t kMaxMetadataKeys = 4'096;

std::string known_dtypes() {
  std::string names;
  for (const DTypeRow& row : dtype_rows()) {
    if (row.safetensors_name.empty()) continue;
    if (!names.empty()) names += ' ';
    names += row.safetensors_name;
  }
  return names;
}

// Where in {"NAME": {"dtype": ..., "shape": [...], "data_offsets": [...]}, "__metadata__": {...}}
// the parser is.
enum class Place : uint8_t { kOutside, kTop, kTensor, kShape, kOffsets, kMetadata };

// Receives the parser's events. A function that returns false has set `failure`; the parser then
// stops with the library's error, which the caller replaces by `failure`.
class Handler {
 public:
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t{64} << 10;
  static constexpr size_t max_string_size = size_t{16} << 20;
  using Code = json::error_code;

  SafetensorsHeader header;
  std::optional<Error> failure;

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }

  bool on_object_begin(Code& code) {
    if (place_ == Place::kOutside) return enter(Place::kTop);
    if (place_ != Place::kTop) return unexpected("an object", code);
    if (key_ == "__metadata__") return enter(Place::kMetadata);
    if (header.entries.size() == kMaxSafetensors) {
      return fail(ErrorCode::kUnsupported, code, "has more than {} tensors", kMaxSafetensors);
    }
    header.entries.emplace_back().name = key_;
    num_fields_ = {};
    return enter(Place::kTensor);
  }

  bool on_object_end(size_t, Code& code) {
    if (place_ == Place::kTensor) {
      for (size_t i = 0; i < kFields.size(); ++i) {
        if (num_fields_[i] == 0) {
          return fail(ErrorCode::kCorrupt, code, "tensor {} has no field '{}'", tensor(),
                      kFields[i]);
        }
      }
    }
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }

  bool on_array_begin(Code& code) {
    if (place_ == Place::kTensor && key_ == kFields[1]) return enter(Place::kShape);
    if (place_ == Place::kTensor && key_ == kFields[2]) {
      num_offsets_ = 0;
      return enter(Place::kOffsets);
    }
    return unexpected("an array", code);
  }

  bool on_array_end(size_t, Code& code) {
    if (place_ == Place::kOffsets && num_offsets_ != 2) {
      return fail(ErrorCode::kCorrupt, code, "tensor {} has {} data_offsets, needed are 2",
                  tensor(), num_offsets_);
    }
    return enter(Place::kTensor);
  }

  bool on_key_part(json::string_view part, size_t, Code&) {
    partial_ += std::string_view(part);
    return true;
  }

  bool on_key(json::string_view last_part, size_t, Code& code) {
    key_ = std::exchange(partial_, {}) + std::string(last_part);
    if (place_ == Place::kTop && key_ == "__metadata__" && std::exchange(has_metadata_, true)) {
      return fail(ErrorCode::kCorrupt, code, "__metadata__ occurs twice");
    }
    if (place_ == Place::kMetadata && !metadata_keys_.insert(key_).second) {
      return fail(ErrorCode::kCorrupt, code, "__metadata__ key {} occurs twice", quote(key_));
    }
    if (metadata_keys_.size() > kMaxMetadataKeys) {
      return fail(ErrorCode::kUnsupported, code, "has more than {} __metadata__ keys",
                  kMaxMetadataKeys);
    }
    return place_ == Place::kTensor ? count_field(code) : true;
  }

  bool on_string_part(json::string_view part, size_t, Code&) {
    partial_ += std::string_view(part);
    return true;
  }

  bool on_string(json::string_view last_part, size_t, Code& code) {
    std::string text = std::exchange(partial_, {}) + std::string(last_part);
    if (place_ == Place::kMetadata) {
      header.metadata.emplace_back(key_, std::move(text));
      return true;
    }
    if (place_ != Place::kTensor || key_ != kFields[0]) return unexpected("a string", code);
    const DTypeRow* row = find_dtype_by_safetensors_name(text);
    if (row == nullptr) {
      return fail(ErrorCode::kUnsupported, code, "tensor {} has dtype {}, known are {}", tensor(),
                  quote(text), known_dtypes());
    }
    header.entries.back().dtype = row->dtype;
    return true;
  }

  bool on_number_part(json::string_view, Code&) { return true; }
  bool on_int64(int64_t value, json::string_view, Code& code) {
    return value < 0 ? unexpected("a negative number", code)
                     : on_unsigned(static_cast<uint64_t>(value), code);
  }
  bool on_uint64(uint64_t value, json::string_view, Code& code) { return on_unsigned(value, code); }
  bool on_double(double, json::string_view, Code& code) {
    return unexpected("a fraction or a number above 64 bits", code);
  }
  bool on_bool(bool, Code& code) { return unexpected("a boolean", code); }
  bool on_null(Code& code) { return unexpected("null", code); }
  bool on_comment_part(json::string_view, Code&) { return true; }
  bool on_comment(json::string_view, Code&) { return true; }

 private:
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  bool enter(Place place) {
    place_ = place;
    return true;
  }
  std::string tensor() const { return quote(header.entries.back().name); }

  bool count_field(Code& code) {
    for (size_t i = 0; i < kFields.size(); ++i) {
      if (key_ != kFields[i]) continue;
      if (++num_fields_[i] == 1) return true;
      return fail(ErrorCode::kCorrupt, code, "tensor {} has field '{}' twice", tensor(), key_);
    }
    return fail(ErrorCode::kUnsupported, code, "tensor {} has the unknown field {}", tensor(),
                quote(key_));
  }

  bool on_unsigned(uint64_t value, Code& code) {
    if (place_ == Place::kOffsets) {
      if (num_offsets_ < 2) header.entries.back().data_offsets[num_offsets_] = value;
      ++num_offsets_;
      return true;
    }
    if (place_ != Place::kShape) return unexpected("a number", code);
    SafetensorsEntry& entry = header.entries.back();
    if (entry.rank == TensorView::kMaxRank) {
      return fail(ErrorCode::kUnsupported, code, "tensor {} has more than {} dimensions", tensor(),
                  TensorView::kMaxRank);
    }
    entry.shape[static_cast<size_t>(entry.rank++)] = value;
    return true;
  }

  bool unexpected(std::string_view found, Code& code) {
    if (place_ == Place::kOutside) {
      return fail(ErrorCode::kCorrupt, code, "the header is {}, needed is an object", found);
    }
    if (place_ == Place::kMetadata) {
      return fail(ErrorCode::kCorrupt, code, "__metadata__ key {} is {}, needed is a string",
                  quote(key_), found);
    }
    if (place_ == Place::kTop) {
      return fail(ErrorCode::kCorrupt, code, "tensor {} is {}, needed is an object", quote(key_),
                  found);
    }
    const bool text = key_ == kFields[0];
    return fail(ErrorCode::kCorrupt, code, "tensor {} has {} in field '{}', needed is {}", tensor(),
                found, key_, text ? "a string" : "an array of whole numbers from 0");
  }

  template <typename... Args>
  bool fail(ErrorCode kind, Code& code, fmt::format_string<Args...> format, Args&&... args) {
    failure = make_error(kind, format, std::forward<Args>(args)...);
    code = json::error::syntax;
    return false;
  }

  Place place_ = Place::kOutside;
  std::string key_;
  std::string partial_;
  std::array<int, kFields.size()> num_fields_{};
  size_t num_offsets_ = 0;
  bool has_metadata_ = false;
  std::unordered_set<std::string> metadata_keys_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::string_view name) {
  json::basic_parser<Handler> parser(json::parse_options{});
  json::error_code code;
  try {
    const size_t consumed = parser.write_some(false, text.data(), text.size(), code);
    if (!code && consumed < text.size()) code = json::error::extra_data;
    Handler& handler = parser.handler();
    if (handler.failure) {
      handler.failure->message = fmt::format("{}: {}", name, handler.failure->message);
      return std::move(*handler.failure);
    }
    if (code) {
      return make_error(ErrorCode::kCorrupt, "{}: the header is not valid JSON: {} at byte {}",
                        name, code.message(), consumed + sizeof(uint64_t));
    }
    return std::move(handler.header);
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kExhausted, "{}: the header cannot be read: {}", name,
                      error.what());
  }
}

}  // namespace headrace
