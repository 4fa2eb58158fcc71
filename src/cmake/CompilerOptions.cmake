# Flags that hold for all of our own code: the contract of determinism forbids contraction and fast-math; the baseline is
# x86-64-v2, and everything above it is chosen at run time from kernels/cpu/<isa>.
add_library(qinfer_options INTERFACE)
target_compile_options(qinfer_options INTERFACE
  -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
  $<$<BOOL:${QINFER_WERROR}>:-Werror>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(QINFER_ARCH_FLAGS -march=x86-64-v2 -mtune=generic)
else()
  set(QINFER_ARCH_FLAGS -march=armv8-a)
endif()
target_compile_options(qinfer_options INTERFACE ${QINFER_ARCH_FLAGS})
if(QINFER_SANITIZE)
  add_compile_options(-fsanitize=${QINFER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${QINFER_SANITIZE})
  # The library is C++ and without the sanitizers' runtime; a C compiler would bring C's part of it.
  string(REPLACE "<CMAKE_C_COMPILER>" "<CMAKE_CXX_COMPILER>" CMAKE_C_LINK_EXECUTABLE "${CMAKE_C_LINK_EXECUTABLE}")
endif()
if(QINFER_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
find_program(QINFER_CCACHE ccache)
if(QINFER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QINFER_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${QINFER_CCACHE})
endif()
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
