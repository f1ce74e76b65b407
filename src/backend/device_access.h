// DeviceAccess: from device pointers to addresses and back. For backends and their tests only: who
// includes this takes device memory for the host's.
#pragma once

#include "backend/device_memory.h"

namespace headrace {

class DeviceAccess {
 public:
  template <typename T>
  static T* address(DevicePtr<T> pointer) {
    return pointer.address_;
  }
  template <typename T>
  static DevicePtr<T> pointer(T* address) {
    return DevicePtr<T>(address);
  }
};

// The address that a device pointer stands for.
template <typename T>
T* raw(DevicePtr<T> pointer) {
  return DeviceAccess::address(pointer);
}

// A device pointer to host memory, where a backend computes on that.
template <typename T>
DevicePtr<T> on_device(T* address) {
  return DeviceAccess::pointer(address);
}

// Element `offset` of it; null stays null.
inline const float* at_or_null(DevicePtr<const float> values, int64_t offset) {
  return values ? raw(values) + offset : nullptr;
}

}  // namespace headrace
