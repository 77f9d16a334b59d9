# The imported targets llama::* of a llama.cpp build made by cmake/llama (see there).
#
# POLYKV_LLAMA_BUILD is that build's folder; when it is not given, ./polykv finds or makes the pinned one.
# Sets LLAMA_CPP_SOURCE_DIR to the source tree of that build.
set(POLYKV_LLAMA_BUILD "" CACHE PATH "Build folder of cmake/llama")
if(NOT POLYKV_LLAMA_BUILD)
  message(STATUS "No POLYKV_LLAMA_BUILD given: asking ./polykv llama for the pinned llama.cpp")
  execute_process(COMMAND "${CMAKE_SOURCE_DIR}/polykv" llama
    OUTPUT_VARIABLE llama_build OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(POLYKV_LLAMA_BUILD "${llama_build}" CACHE PATH "Build folder of cmake/llama" FORCE)
endif()

set(llama_targets "${POLYKV_LLAMA_BUILD}/polykv-llama-targets.cmake")
if(NOT EXISTS "${llama_targets}")
  message(FATAL_ERROR "${llama_targets} is missing: run ./polykv build, or remove POLYKV_LLAMA_BUILD")
endif()
load_cache("${POLYKV_LLAMA_BUILD}" READ_WITH_PREFIX "" LLAMA_CPP_SOURCE_DIR)

# What the libraries were built with, so that the names in their link lists exist here too.
file(READ "${llama_targets}" llama_link_list)
foreach(package OpenMP CUDAToolkit Vulkan BLAS)
  string(REPLACE "Toolkit" "" namespace "${package}")
  if(llama_link_list MATCHES "[:;\"]${namespace}::")
    find_package(${package} REQUIRED)
  endif()
endforeach()
include("${llama_targets}")
