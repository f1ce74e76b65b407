// Built with the instruction set's flags; called only where the processor has it.

#include "tile_cases.h"

namespace headrace::cpu {

std::vector<uint32_t> run_on_hardware(TileProduct product, const TileCase& c) {
  return run_tile_case<HardwareTiles>(product, c);
}

}  // namespace headrace::cpu
