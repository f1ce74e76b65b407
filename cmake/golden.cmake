# golden_data: the recorded results of tests/data/golden, unpacked once for all presets. build/golden/dense holds what
# this version runs, build/golden/all everything (src/base/testing/golden.h finds both).

set(golden_dir ${CMAKE_SOURCE_DIR}/build/golden)
set(golden_packed ${CMAKE_SOURCE_DIR}/tests/data/golden)
set(golden_stamp ${golden_dir}/unpacked.stamp)

add_custom_command(
  OUTPUT ${golden_stamp}
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${golden_dir}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${golden_dir}/dense ${golden_dir}/all
  COMMAND ${CMAKE_COMMAND} -E chdir ${golden_dir}/dense ${CMAKE_COMMAND} -E tar xf ${golden_packed}/dense.tar.zst
  COMMAND ${CMAKE_COMMAND} -E chdir ${golden_dir}/all ${CMAKE_COMMAND} -E tar xf ${golden_packed}/dense.tar.zst
  COMMAND ${CMAKE_COMMAND} -E chdir ${golden_dir}/all ${CMAKE_COMMAND} -E tar xf ${golden_packed}/others.tar.zst
  COMMAND ${CMAKE_COMMAND} -E chdir ${golden_dir}/all ${CMAKE_COMMAND} -E tar xf ${golden_packed}/recorded.tar.zst
  COMMAND ${CMAKE_COMMAND} -E touch ${golden_stamp}
  DEPENDS ${golden_packed}/dense.tar.zst ${golden_packed}/others.tar.zst ${golden_packed}/recorded.tar.zst
  COMMENT "Unpacking recorded results"
  VERBATIM)
add_custom_target(golden_data DEPENDS ${golden_stamp})
