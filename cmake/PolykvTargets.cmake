# Compiler flags of our own code, and the functions that make its libraries and tests.

add_library(polykv_options INTERFACE)
target_include_directories(polykv_options INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_compile_options(polykv_options INTERFACE
  -Wall -Wextra -Wpedantic -Werror
  -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi -Wformat=2 -Wundef -Wvla
  -Wno-missing-field-initializers  # designated initialisers leave the rest at its default on purpose
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # g++ 12 is wrong about std::string's operator+
if(POLYKV_SANITIZE)
  target_compile_options(polykv_options INTERFACE
    -fsanitize=${POLYKV_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(polykv_options INTERFACE -fsanitize=${POLYKV_SANITIZE})
endif()

# polykv_library(NAME SOURCES file... LINK library...)
# The static library NAME of SOURCES without the *_test.cc among them (INTERFACE when none is left).
function(polykv_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  list(FILTER ARG_SOURCES EXCLUDE REGEX "_test\\.cc$")
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC polykv_options ${ARG_LINK})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE polykv_options ${ARG_LINK})
  endif()
endfunction()

# polykv_test(NAME LABEL fast|model SOURCES file... LINK library...)
# One executable with the *_test.cc among SOURCES, each of its cases a ctest test with the label.
# Cases labelled "model" find the GGUF file in $POLYKV_TEST_MODEL and run one at a time.
function(polykv_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LINK" ${ARGN})
  list(FILTER ARG_SOURCES INCLUDE REGEX "_test\\.cc$")
  if(NOT POLYKV_BUILD_TESTS OR NOT ARG_SOURCES)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE polykv_options ${ARG_LINK} GTest::gtest_main)
  set(properties LABELS ${ARG_LABEL} TIMEOUT 60)
  if(ARG_LABEL STREQUAL "model")
    set(properties LABELS model TIMEOUT 600 RUN_SERIAL ON)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()

# polykv_embed_dashboard(TARGET): adds the files of dashboard/ to the library, as constants.
function(polykv_embed_dashboard target)
  set(script "${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake")
  set(output "${CMAKE_CURRENT_BINARY_DIR}/dashboard_files.cc")
  file(GLOB files CONFIGURE_DEPENDS
    "${CMAKE_SOURCE_DIR}/dashboard/*.html" "${CMAKE_SOURCE_DIR}/dashboard/*.css"
    "${CMAKE_SOURCE_DIR}/dashboard/*.js" "${CMAKE_SOURCE_DIR}/dashboard/*.svg")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DFILES=${files}" -P "${script}"
    DEPENDS "${script}" ${files} VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()
