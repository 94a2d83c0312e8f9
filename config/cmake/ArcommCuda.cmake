# CUDA, where nvcc is on PATH: then its code is always compiled. Elsewhere everything builds and passes without it, and
# so do the sanitizers' builds: they see nothing of a GPU, and nvcc does not take their flags.
find_program(ARCOMM_NVCC nvcc)
set(ARCOMM_CUDA OFF)
if(ARCOMM_NVCC AND NOT ARCOMM_SANITIZE)
  set(ARCOMM_CUDA ON)
  # Machine code for Hopper; from the other the driver compiles for what came before (sm_80 on) and comes later.
  if(NOT DEFINED ENV{CUDAARCHS})  # which CMake reads by itself
    set(CMAKE_CUDA_ARCHITECTURES "90a-real;80-virtual" CACHE STRING "GPU architectures, as CMake names them")
  endif()
  set(CMAKE_CUDA_COMPILER ${ARCOMM_NVCC})
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc speaks C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  # The same bits as on the host: no multiply-add that the source does not spell.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall,-Wextra>")
  if(ARCOMM_WERROR)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
endif()
