// What a machine's limits ask of each op of a profile: the longer of reading its bytes and of
// making its operations.
#pragma once

#include <functional>

#include "backend/cpu/kernels/registry.h"
#include "backend/kv_planes.h"
#include "backend/op_record.h"
#include "bench/machine_file.h"

namespace headrace {

// kernels: the rows in use, which say what arithmetic a layout is multiplied with, and keys and
// values of that type. Reads are those over the working set of the op's whole step, in bytes. The
// function gives seconds.
std::function<double(const OpRecord& op, double working_set)> op_limit(
    const cpu::KernelSet& kernels, KvType kv_type, const MachineFile& machine);

}  // namespace headrace
