#include "checkpoint/hub/file_kind.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "base/descriptor.h"
#include "base/quote.h"
#include "checkpoint/gguf.h"
#include "checkpoint/hub/store.h"
#include "checkpoint/safetensors.h"

namespace headrace::hub {
namespace {

constexpr size_t kHeadBytes = 512;
constexpr size_t kShownBytes = 48;
constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;

struct Beginning {
  std::string head;
  uint64_t file_bytes = 0;

  template <typename T>
  T number(size_t offset) const {
    T value = 0;
    if (head.size() >= offset + sizeof(T)) std::memcpy(&value, head.data() + offset, sizeof(T));
    return value;
  }
  std::string_view text() const {  // without what may stand before the first sign
    std::string_view rest = head;
    if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
    const size_t first = rest.find_first_not_of(" \t\r\n");
    return first == std::string_view::npos ? std::string_view() : rest.substr(first);
  }
};

bool is_gguf(const Beginning& file) {
  const auto version = file.number<uint32_t>(4);
  return file.head.starts_with("GGUF") && version > 0 && version < 1000;
}

bool is_safetensors(const Beginning& file) {
  const auto header_bytes = file.number<uint64_t>(0);
  return header_bytes >= 2 && header_bytes <= kMaxHeaderBytes &&
         header_bytes + sizeof(uint64_t) <= file.file_bytes &&
         file.head.substr(sizeof(uint64_t), 1) == "{";
}

bool is_json(const Beginning& file) {
  return file.text().starts_with('{') || file.text().starts_with('[');
}

bool is_no_page(const Beginning& file) {
  std::string start(file.text().substr(0, 15));
  std::transform(start.begin(), start.end(), start.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return !start.starts_with("<!doctype html") && !start.starts_with("<html");
}

using ParseFn = Result<std::unique_ptr<Checkpoint>> (*)(std::span<const std::byte> bytes,
                                                        const std::string& name);

struct KindRow {
  std::string_view ending, what;
  bool (*is_kind)(const Beginning& file);
  ParseFn parse;  // null: the form has no length
};

constexpr KindRow kKinds[] = {
    {".gguf", "a GGUF file", is_gguf, parse_gguf},
    {".safetensors", "a safetensors file", is_safetensors, parse_safetensors},
    {".json", "a JSON file", is_json, nullptr},
    {"", "a file of a model", is_no_page, nullptr},
};

// What is not supported here may be whole: the loader says what it is.
Status check_tensors(ParseFn parse, const std::string& path, std::string_view name) {
  const MappedFile file = TRY(MappedFile::open(path));
  auto parsed = parse(file.bytes(), std::string(name));
  if (parsed.ok() || parsed.error().code != ErrorCode::kCorrupt) return {};
  Error error = std::move(parsed).error();
  error.hint =
      "nothing was kept; pull it again: if the same comes, the server's file is cut short or "
      "broken";
  return error;
}

Result<Beginning> read_beginning(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) {
    return make_error(ErrorCode::kIo, "cannot open '{}': {}", path, std::strerror(errno));
  }
  Beginning beginning;
  beginning.file_bytes = file_size_or_zero(path);
  beginning.head.resize(std::min<uint64_t>(beginning.file_bytes, kHeadBytes));
  TRY(read_at(file.get(), 0, std::as_writable_bytes(std::span(beginning.head)), path));
  return beginning;
}

}  // namespace

Status check_file_kind(const std::string& path, std::string_view name,
                       std::string_view content_type) {
  const auto* const row =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const KindRow& at) { return name.ends_with(at.ending); });
  const Beginning file = TRY(read_beginning(path));
  if (row->is_kind(file)) return row->parse ? check_tensors(row->parse, path, name) : Status();
  Error error = make_error(
      ErrorCode::kCorrupt, "'{}' is not {}: {} bytes came{} that begin with {}", name, row->what,
      file.file_bytes, content_type.empty() ? "" : fmt::format(" as {}", content_type),
      quote(std::string_view(file.head).substr(0, kShownBytes)));
  error.hint =
      "nothing was kept; check the address: it must be that of the file itself, and pages "
      "that ask for a login or consent are sent in place of files";
  return error;
}

}  // namespace headrace::hub
