# headrace_ui: the web page as bytes in a library that implements embedded_assets() (src/server/assets.h).
#
# HEADRACE_UI=ON builds web/ with npm inside the build tree, when the target is built; the source tree stays
# clean. HEADRACE_UI_DIST=DIR embeds a page that was built elsewhere, so that no npm is needed.
# HEADRACE_UI=OFF makes the table empty.

set(HEADRACE_UI_DIST "" CACHE PATH "Embed this built page instead of building web/ with npm")

enable_language(ASM)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(ui_work ${CMAKE_BINARY_DIR}/web)
set(ui_out ${CMAKE_BINARY_DIR}/web-embed)
set(ui_tool ${CMAKE_SOURCE_DIR}/tools/embed_assets.py)
set(ui_dist "")
set(ui_depends ${ui_tool})
set(ui_build)

if(HEADRACE_UI AND HEADRACE_UI_DIST)
  set(ui_dist ${HEADRACE_UI_DIST})
  file(GLOB_RECURSE ui_sources CONFIGURE_DEPENDS ${ui_dist}/*)
  list(APPEND ui_depends ${ui_sources})
elseif(HEADRACE_UI)
  find_program(HEADRACE_NPM npm)
  if(NOT HEADRACE_NPM)
    message(FATAL_ERROR "The web page needs npm (node 20.19 or later), which was not found. Install it, give a built "
                        "page with -DHEADRACE_UI_DIST=DIR, or build without the page: -DHEADRACE_UI=OFF")
  endif()
  set(ui_dist ${ui_work}/dist)
  set(ui_web ${CMAKE_SOURCE_DIR}/web)
  set(ui_config package.json package-lock.json)
  list(TRANSFORM ui_config PREPEND ${ui_web}/)
  add_custom_command(
    OUTPUT ${ui_work}/installed.stamp
    COMMAND ${CMAKE_COMMAND} -E make_directory ${ui_work}
    COMMAND ${CMAKE_COMMAND} -E copy ${ui_config} ${ui_work}
    COMMAND ${CMAKE_COMMAND} -E chdir ${ui_work} ${HEADRACE_NPM} ci --no-audit --no-fund --loglevel=error
    COMMAND ${CMAKE_COMMAND} -E touch ${ui_work}/installed.stamp
    DEPENDS ${ui_config}
    COMMENT "Installing the web page's build tools"
    VERBATIM)
  file(GLOB ui_top CONFIGURE_DEPENDS ${ui_web}/*.html ${ui_web}/*.js ${ui_web}/tsconfig.json)
  file(GLOB_RECURSE ui_sources CONFIGURE_DEPENDS ${ui_web}/src/*)
  list(APPEND ui_depends ${ui_work}/installed.stamp ${ui_top} ${ui_sources})
  set(ui_build
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${ui_work}/src ${ui_dist}
    COMMAND ${CMAKE_COMMAND} -E copy ${ui_top} ${ui_work}
    COMMAND ${CMAKE_COMMAND} -E copy_directory ${ui_web}/src ${ui_work}/src
    COMMAND ${CMAKE_COMMAND} -E chdir ${ui_work} ${HEADRACE_NPM} run --silent build)
endif()

add_custom_command(
  OUTPUT ${ui_out}/assets.S ${ui_out}/assets.cpp
  ${ui_build}
  COMMAND ${Python3_EXECUTABLE} ${ui_tool} ${ui_out} ${ui_dist}
  DEPENDS ${ui_depends}
  COMMENT "Building and embedding the web page"
  VERBATIM)

# The bytes are a library of their own: the C++ warning flags mean nothing to the assembler.
add_library(headrace_ui_bytes OBJECT ${ui_out}/assets.S)
target_include_directories(headrace_ui_bytes PRIVATE ${ui_out})
add_library(headrace_ui STATIC ${ui_out}/assets.cpp $<TARGET_OBJECTS:headrace_ui_bytes>)
target_link_libraries(headrace_ui PUBLIC headrace_flags)

headrace_test(test_ui SOURCES ${CMAKE_SOURCE_DIR}/tests/web/assets_test.cpp DEPS headrace_ui LABELS ui)
target_compile_definitions(test_ui PRIVATE HEADRACE_UI_EMBEDDED=$<BOOL:${HEADRACE_UI}>)
