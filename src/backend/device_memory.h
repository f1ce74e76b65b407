// Device memory: memory that a backend's ops work on, and pointers into it.
//
// Only backends look into it (device_access.h). Elsewhere a DevicePtr is an address that can be
// kept, moved on and given to an op, but neither read nor written: the compiler refuses. What the
// host wants to see, it asks the backend for (Backend::download, Backend::read_view).
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace headrace {

// Address of a T in device memory, or null. As cheap as the plain pointer that it stands for.
template <typename T>
class DevicePtr {
 public:
  constexpr DevicePtr() = default;
  constexpr DevicePtr(std::nullptr_t) {}
  // Adds const.
  template <typename U>
    requires(std::same_as<const U, T> && !std::same_as<U, T>)
  constexpr DevicePtr(DevicePtr<U> other) : address_(other.address_) {}

  constexpr explicit operator bool() const { return address_ != nullptr; }
  constexpr bool operator==(const DevicePtr&) const = default;
  constexpr DevicePtr operator+(ptrdiff_t count) const { return DevicePtr(address_ + count); }
  constexpr DevicePtr& operator+=(ptrdiff_t count) {
    address_ += count;
    return *this;
  }
  constexpr ptrdiff_t operator-(DevicePtr other) const { return address_ - other.address_; }

  // The same place as another type; alignment is the caller's business.
  template <typename U>
  DevicePtr<U> cast() const {
    return DevicePtr<U>(reinterpret_cast<U*>(address_));
  }
  auto bytes() const {
    return cast<std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>>();
  }

 private:
  template <typename U>
  friend class DevicePtr;
  friend class DeviceAccess;
  constexpr explicit DevicePtr(T* address) : address_(address) {}

  T* address_ = nullptr;
};

// What memory is for: where a backend puts it, and what an error calls it.
enum class MemoryUse : uint8_t {
  kWeights,      // written at load, read by every step
  kKv,           // address space at first: the system gives pages as they are written
  kActivations,  // of one step
  kResults,      // written by ops, then looked at by the host (read_view is cheap): logits
};

// Owns device memory: zeros at first, 64-byte aligned. Goes back to the backend with the object;
// the backend may end before it. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // For backends: `owner` frees the memory when it ends.
  DeviceMemory(DevicePtr<std::byte> start, size_t num_bytes, std::shared_ptr<void> owner)
      : start_(start), num_bytes_(num_bytes), owner_(std::move(owner)) {}
  DeviceMemory(DeviceMemory&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)),
        num_bytes_(std::exchange(other.num_bytes_, 0)),
        owner_(std::move(other.owner_)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(num_bytes_, other.num_bytes_);
    std::swap(owner_, other.owner_);
    return *this;
  }

  DevicePtr<std::byte> data() { return start_; }
  DevicePtr<const std::byte> data() const { return start_; }
  template <typename T>
  DevicePtr<T> as() {
    return start_.cast<T>();
  }
  template <typename T>
  DevicePtr<const T> as() const {
    return start_.cast<const T>();
  }
  size_t size() const { return num_bytes_; }  // as asked for, or a little more

 private:
  DevicePtr<std::byte> start_;
  size_t num_bytes_ = 0;
  std::shared_ptr<void> owner_;
};

}  // namespace headrace
