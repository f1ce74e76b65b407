#include "base/file_fault.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace headrace {
namespace {

// Entries are never freed, only used again: the handler may walk the list at any time.
struct Mapping {
  std::atomic<uintptr_t> begin = 0;  // 0: free
  std::atomic<uintptr_t> end = 0;
  char path[512] = {};  // its end, where it is longer
  Mapping* next = nullptr;
};

std::atomic<Mapping*> first_mapping = nullptr;
std::mutex writers;
struct sigaction previous_action;

const Mapping* find(uintptr_t address) {
  for (const Mapping* at = first_mapping.load(); at != nullptr; at = at->next) {
    if (address >= at->begin.load() && address < at->end.load()) return at;
  }
  return nullptr;
}

void write_text(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody is left to tell
}

void on_bus_error(int, siginfo_t* info, void*) {
  const Mapping* mapping = find(reinterpret_cast<uintptr_t>(info->si_addr));
  if (mapping == nullptr) {  // the instruction runs again and meets the earlier handler
    sigaction(SIGBUS, &previous_action, nullptr);
    return;
  }
  static std::atomic_flag told;
  while (told.test_and_set()) pause();  // until the thread that tells of it ends the process
  write_text("headrace: '");
  write_text(mapping->path);
  write_text(
      "' was cut short while it was read, or its disk failed (wait until whatever writes it has "
      "finished, then start again)\n");
  _exit(1);
}

void install_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = &on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  });
}

}  // namespace

void watch_mapping(const void* begin, size_t num_bytes, const std::string& path) {
  install_once();
  const std::lock_guard lock(writers);
  Mapping* entry = first_mapping.load();
  while (entry != nullptr && entry->begin.load() != 0) entry = entry->next;
  const bool is_new = entry == nullptr;
  if (is_new) entry = new Mapping;
  const size_t num_chars = std::min(path.size(), sizeof(entry->path) - 1);
  std::memcpy(entry->path, path.data() + path.size() - num_chars, num_chars);
  entry->path[num_chars] = 0;
  const auto address = reinterpret_cast<uintptr_t>(begin);
  entry->end.store(address + num_bytes);
  entry->begin.store(address);
  if (!is_new) return;
  entry->next = first_mapping.load();
  first_mapping.store(entry);
}

void forget_mapping(const void* begin) {
  const std::lock_guard lock(writers);
  for (Mapping* at = first_mapping.load(); at != nullptr; at = at->next) {
    if (at->begin.load() != reinterpret_cast<uintptr_t>(begin)) continue;
    at->end.store(0);
    at->begin.store(0);
    return;
  }
}

}  // namespace headrace
