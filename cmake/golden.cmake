# golden_data: the recorded results of tests/data/golden/*.tar.zst, unpacked once for all presets into build/golden
# (src/base/testing/golden.h finds it).

set(golden_dir ${CMAKE_SOURCE_DIR}/build/golden)
set(golden_stamp ${golden_dir}/unpacked.stamp)
file(GLOB golden_archives CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/data/golden/*.tar.zst)
set(unpack_commands)
foreach(archive ${golden_archives})
  list(APPEND unpack_commands COMMAND ${CMAKE_COMMAND} -E chdir ${golden_dir} ${CMAKE_COMMAND} -E tar xf ${archive})
endforeach()

add_custom_command(
  OUTPUT ${golden_stamp}
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${golden_dir}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${golden_dir}
  ${unpack_commands}
  COMMAND ${CMAKE_COMMAND} -E touch ${golden_stamp}
  DEPENDS ${golden_archives}
  COMMENT "Unpacking recorded results"
  VERBATIM)
add_custom_target(golden_data DEPENDS ${golden_stamp})
