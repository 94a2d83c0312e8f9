# Language level, warnings and sanitizers: what every target of this project is built with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # every room may end up inside libarclient.so
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

option(ARCOMM_BUILD_TESTS "Build the tests" ON)
option(ARCOMM_BUILD_BENCH "Build the benchmarks and their peers (Gloo, Open MPI)" OFF)
option(ARCOMM_BUILD_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(ARCOMM_WERROR "Treat warnings as errors" OFF)
set(ARCOMM_SANITIZE "" CACHE STRING "Value for -fsanitize=, for instance address,undefined or thread")

include(GNUInstallDirs)
find_program(ARCOMM_CCACHE ccache)
if(ARCOMM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ARCOMM_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ARCOMM_CCACHE})
endif()

add_library(arcomm_options INTERFACE)
target_compile_options(arcomm_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wswitch -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
target_include_directories(arcomm_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(ARCOMM_WERROR)
  target_compile_options(arcomm_options INTERFACE -Werror)
endif()
if(ARCOMM_SANITIZE)
  add_compile_definitions(ARCOMM_SANITIZED)  # for tests: compilers name this differently
  add_compile_options(-fsanitize=${ARCOMM_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ARCOMM_SANITIZE})
  if(ARCOMM_SANITIZE MATCHES "undefined")
    # Without vptr: its check asks the kernel through a pipe whether an object is readable, and takes good objects for
    # bad ones in a process that has run out of descriptors, which the fault tests bring about.
    # Without clang's check of function types: it wants C++'s part of its library in C programs that link libarclient.
    add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=vptr
                        $<$<C_COMPILER_ID:Clang>:-fno-sanitize=function>)
  endif()
endif()
if(ARCOMM_BUILD_FUZZ AND ARCOMM_SANITIZE)
  # The rooms report their branches to the fuzzer. Programs that have none inside link, too: the sanitizer's library takes
  # the reports then.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
