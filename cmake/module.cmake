# headrace_module(NAME DEPS ...): the folder's *.cpp (subfolders included, *_test.cpp left out) become
# the static library hr_NAME; its *_test.cpp become the GoogleTest program test_NAME. EXCLUDE: paths
# that match are compiled by other rules. TESTS_COMPUTE: these tests compute much themselves, and are optimised.

find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(GTest REQUIRED)
find_package(Threads REQUIRED)
include(GoogleTest)

add_library(headrace_flags INTERFACE)
target_compile_options(headrace_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror -ffp-contract=off
  -fno-omit-frame-pointer
  $<$<CXX_COMPILER_ID:Clang>:-Wno-gnu-statement-expression>)
target_include_directories(headrace_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(headrace_flags INTERFACE fmt::fmt spdlog::spdlog Threads::Threads)
if(HEADRACE_SANITIZE)
  string(REPLACE ";" "," sanitizers "${HEADRACE_SANITIZE}")
  # The own flags of these presets are the release's, for the kernels' sake (kernels.cmake).
  set(sanitize_options -fsanitize=${sanitizers} -fno-sanitize-recover=all -O1 -g1 -UNDEBUG)
  # They take a fifth of the compile time: bad accesses (null, object-size) the address sanitizer finds as well, and there
  # are few casts of classes and functions to look at (vptr, function).
  if(HEADRACE_SANITIZE MATCHES undefined)
    list(APPEND sanitize_options -fno-sanitize=null,object-size,vptr,function)
  endif()
  add_compile_options(${sanitize_options})
  add_link_options(-fsanitize=${sanitizers})
endif()
if(HEADRACE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/precompiled.cmake)
headrace_precompiled(headrace_std)
headrace_precompiled(headrace_std_test DEPS GTest::gtest HEADERS <gtest/gtest.h>)
# The undefined-behaviour checks take a quarter of the compile time of a test; what they are about, the sources under test,
# has them.
set(unit_test_options -O0)
if(HEADRACE_SANITIZE MATCHES undefined)
  list(APPEND unit_test_options -fno-sanitize=undefined)
endif()
headrace_precompiled(headrace_std_unit_test DEPS GTest::gtest HEADERS <gtest/gtest.h> OPTIONS ${unit_test_options})

# headrace_seldom(TARGET): what runs seldom or only waits for others. Compiling it well would take longer than it saves.
function(headrace_seldom target)
  if(NOT HEADRACE_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# The same with checks of addresses or threads, where optimising takes as long as all else: libraries that compute little,
# and tests but those that compute much themselves.
if(HEADRACE_SANITIZE AND NOT HEADRACE_FUZZ)
  set(unhurried_modules cli server lab bench verify model)
  set(hurried_tests "_sim$|^test_(kernels|rows|delta|engine_bits)$")
  headrace_precompiled(headrace_std_unhurried OPTIONS -O0)
endif()
# headrace_use_std(NAME): the product's header for hr_NAME.
function(headrace_use_std name)
  if(name IN_LIST unhurried_modules)
    target_compile_options(hr_${name} PRIVATE -O0)
    headrace_use(hr_${name} headrace_std_unhurried)
  else()
    headrace_use(hr_${name} headrace_std)
  endif()
endfunction()

# headrace_together(TARGET COUNT): the sources of a folder are compiled COUNT at a time, as one: reading the headers is
# most of what compiling a small source takes. So names in unnamed namespaces differ within a folder, and each source of
# tests has a namespace named after it (and after its folder, where two sources have one name). Sources with options of
# their own stay alone; HEADRACE_UNITY=OFF compiles each by itself, as clang-tidy wants it.
function(headrace_together target count)
  if(NOT HEADRACE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${CMAKE_CURRENT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "in_${folder}" group)
    if(NOT DEFINED num_${group})
      set(num_${group} 0)
    endif()
    math(EXPR part "${num_${group}} / ${count}")
    math(EXPR num_${group} "${num_${group}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${part})
  endforeach()
endfunction()

function(headrace_module name)
  cmake_parse_arguments(ARG "TESTS_COMPUTE" "EXCLUDE" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(sources)
    add_library(hr_${name} STATIC ${sources})
    target_link_libraries(hr_${name} PUBLIC headrace_flags ${ARG_DEPS})
    headrace_use_std(${name})
    headrace_together(hr_${name} 20)
  else()
    add_library(hr_${name} INTERFACE)
    target_link_libraries(hr_${name} INTERFACE headrace_flags ${ARG_DEPS})
  endif()
  if(tests AND ARG_TESTS_COMPUTE)
    headrace_test(test_${name} SOURCES ${tests} DEPS hr_${name} LABELS ${name})
    headrace_together(test_${name} 6)
  elseif(tests)
    headrace_unit_test(test_${name} SOURCES ${tests} DEPS hr_${name} LABELS ${name})
  endif()
endfunction()

# Tests that sanitizers have nothing to say about: kernels, and copies of them with bugs, are compiled without, and
# whole models take hours. Instrumented builds leave them out.
set(plain_tests test_verification test_real test_tiles)

# headrace_unit_test(NAME SOURCES ... DEPS ...): tests beside the sources: many, and each does little itself. Optimising
# them takes half of their compile time.
function(headrace_unit_test name)
  headrace_test(${name} ${ARGN} PRECOMPILED headrace_std_unit_test OPTIONS ${unit_test_options})
  headrace_together(${name} 6)
endfunction()

# headrace_test(NAME SOURCES ... DEPS ...): a GoogleTest program, each TEST one ctest entry.
function(headrace_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS;PRECOMPILED" "SOURCES;DEPS;LABELS;OPTIONS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)  # cores that one test keeps busy
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE headrace_flags ${ARG_DEPS} GTest::gtest_main)
  if(hurried_tests AND NOT ARG_PRECOMPILED AND NOT name MATCHES "${hurried_tests}")
    set(ARG_PRECOMPILED headrace_std_unit_test)
    set(ARG_OPTIONS ${unit_test_options})
  endif()
  if(ARG_PRECOMPILED)
    target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
    headrace_use(${name} ${ARG_PRECOMPILED})
  else()
    headrace_seldom(${name})
    headrace_use(${name} headrace_std_test)
  endif()
  add_dependencies(${name} golden_data)
  target_compile_definitions(${name} PRIVATE HEADRACE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(HEADRACE_SANITIZE AND name IN_LIST plain_tests)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS} LABELS "${ARG_LABELS}")
endfunction()
