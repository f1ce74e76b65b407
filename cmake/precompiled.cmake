# One precompiled header for the product's sources and one for the tests': the standard library, fmt, JSON,
# and GoogleTest.
# Parsing these is about a third of the time of most sources. Sources with compile options of their own (sealed units,
# copies with bugs) do without: another instruction set is another header, and nothing of it may leak into them.

set(precompiled_headers <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
  <deque> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <random> <span> <string> <string_view>
  <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <boost/json.hpp>)

# ccache looks through a precompiled header only if it is told that its macros and time do not matter.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  else()
    add_compile_options(-fpch-preprocess)
  endif()
endif()

# headrace_precompiled(NAME DEPS ... HEADERS ... OPTIONS ...): the owner of a header that other targets use, which must
# be compiled with the same options. Its one source is empty.
function(headrace_precompiled name)
  cmake_parse_arguments(ARG "" "" "DEPS;HEADERS;OPTIONS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/generated/empty.cpp "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/generated/empty.cpp)
  target_link_libraries(${name} PRIVATE headrace_flags ${ARG_DEPS})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${precompiled_headers} ${ARG_HEADERS})
endfunction()

# headrace_use(TARGET OWNER): at the end of the folder, when all sources have their options.
function(headrace_use target owner)
  cmake_language(EVAL CODE "cmake_language(DEFER CALL headrace_use_now ${target} ${owner})")
endfunction()

function(headrace_use_now target owner)
  target_precompile_headers(${target} REUSE_FROM ${owner})
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
