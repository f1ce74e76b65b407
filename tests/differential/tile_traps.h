// Tile instructions on a processor without them: those that this program executes come to a
// handler (SIGILL), which does on tile_machine() of the thread that met them what they would have
// done and goes on behind them. So the kernels of the AMX unit run as they are built for serving,
// on any processor that has the vectors they need.
//
// A fault of the model (tile_model.h) ends the program with its text, as the processor would. Some
// microseconds an instruction. Link with --wrap=sigaction: who asks for SIGILL while the traps are
// on gets what is no tile instruction (verification does, FaultTrap).
//
// Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
// "LDTILECFG", "TILELOADD", "TILESTORED", "TILEZERO", "TDPBSSD", "TDPBF16PS", section 2.3.5.
#pragma once

#include <cstdint>

namespace headrace::cpu {

class TileTraps {
 public:
  TileTraps();   // one at a time
  ~TileTraps();  // what the program does with SIGILL is as before
  TileTraps(const TileTraps&) = delete;
  TileTraps& operator=(const TileTraps&) = delete;

  int64_t num_instructions() const;  // that came to the handler, of all threads
};

}  // namespace headrace::cpu
