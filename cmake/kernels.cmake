# Kernel units: which parts (src/backend/cpu/kernels/parts) a unit is made of, and with which
# instructions these are compiled. Sealed: see src/backend/cpu/kernels/kernels.h. Instruction sets are
# chosen per unit, never for the program.

set(kernel_avx2_flags -mavx2 -mfma -mf16c)
set(kernel_avx512_flags ${kernel_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl
  -mprefer-vector-width=512)
set(kernel_integer_parts int16_direct int16_blocked int8_direct int8_blocked)
set(kernel_all_parts ${kernel_integer_parts} floats elementwise attention recurrent
  delta latent)

# headrace_kernel_unit(TARGET UNIT LANES HEADER FLAGS ... PARTS ... [OPTIMISE -O3] [INCLUDE folders]):
# the object library TARGET with the parts of a unit in the namespace UNIT, over the class LANES of
# HEADER. INCLUDE are searched for headers before src.
function(headrace_kernel_unit target unit lanes header)
  cmake_parse_arguments(ARG "" "OPTIMISE" "FLAGS;PARTS;INCLUDE" ${ARGN})
  if(NOT ARG_OPTIMISE)
    set(ARG_OPTIMISE -O3)
  endif()
  list(TRANSFORM ARG_PARTS
    REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/parts/\\1.cpp")
  add_library(${target} OBJECT ${ARG_PARTS})
  if(ARG_INCLUDE)
    target_include_directories(${target} BEFORE PRIVATE ${ARG_INCLUDE})
  endif()
  # Instrumented, these take many minutes. What they may touch is tested with guard values on both sides of every buffer;
  # the reference unit is instrumented. So they are compiled with the command of the release, and ccache has what that
  # build made.
  if(HEADRACE_SANITIZE)
    get_target_property(options ${target} COMPILE_OPTIONS)
    list(REMOVE_ITEM options ${sanitize_options})
    set_property(TARGET ${target} PROPERTY COMPILE_OPTIONS ${options})
  endif()
  target_link_libraries(${target} PRIVATE headrace_flags)
  target_compile_options(${target} PRIVATE ${ARG_FLAGS} ${ARG_OPTIMISE} -fno-exceptions -fno-rtti)
  target_compile_definitions(${target} PRIVATE HEADRACE_UNIT=${unit} HEADRACE_LANES=${lanes}
    HEADRACE_LANES_HEADER="${header}")
  # g++ 12 takes its own AVX-512 header for a user of uninitialised values.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
endfunction()
