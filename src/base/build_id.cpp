#include "base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/strings.h"

namespace headrace {
namespace {

constexpr size_t round_to_word(size_t size) { return (size + 3) / 4 * 4; }

// The note of one segment that holds the build id, as hex.
std::string find_note(const std::byte* notes, size_t num_bytes) {
  size_t at = 0;
  while (num_bytes - at >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof(note));
    at += sizeof(note);
    const size_t name_bytes = round_to_word(note.n_namesz);
    const size_t data_bytes = round_to_word(note.n_descsz);
    if (name_bytes + data_bytes > num_bytes - at) break;
    const bool found = note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                       std::memcmp(notes + at, "GNU", 4) == 0;
    if (found) {
      std::string hex;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        append_format(hex, "{:02x}", std::to_integer<unsigned>(notes[at + name_bytes + i]));
      }
      return hex;
    }
    at += name_bytes + data_bytes;
  }
  return {};
}

bool holds(const dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    const uintptr_t begin = info.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= begin && address - begin < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

// Of the object that this code is part of: the program, or a library that another one loaded.
int visit_object(dl_phdr_info* info, size_t /*size*/, void* context) {
  if (!holds(*info, reinterpret_cast<uintptr_t>(&build_id))) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const std::byte*>(info->dlpi_addr + segment.p_vaddr);
    auto* id = static_cast<std::string*>(context);
    if (id->empty()) *id = find_note(notes, segment.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(&visit_object, &id);
  return id;
}

}  // namespace headrace
