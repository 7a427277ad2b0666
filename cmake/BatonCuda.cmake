# The CUDA toolkit and the header libraries of the CUDA backend.
set(BATON_CUDA_ARCHITECTURES "90a-real" CACHE STRING
    "GPU architectures to compile for: a list of 80-real, 86-real, …, or 80-virtual for PTX that every GPU runs")
# Not 90: its code would run on Hopper, where the backend expects the kernels of sm_90a.
foreach(architecture IN LISTS BATON_CUDA_ARCHITECTURES)
  if(NOT architecture MATCHES "^(80|86|89|90a|100|103|120)(-real|-virtual)?$")
    message(FATAL_ERROR "BATON_CUDA_ARCHITECTURES contains '${architecture}'; it must be a list of 80, 86, 89, "
                        "90a, 100, 103 and 120, each with -real (machine code) or -virtual (PTX)")
  endif()
endforeach()
set(BATON_FLASHINFER "${baton_home}/flashinfer" CACHE PATH
    "FlashInfer's headers, with CUTLASS and CCCL; `./dev build cuda` downloads them")
if(NOT EXISTS ${BATON_FLASHINFER}/include/flashinfer)
  message(FATAL_ERROR "BATON_FLASHINFER is '${BATON_FLASHINFER}', which has no include/flashinfer. "
                      "Run `./dev build cuda`, or set BATON_FLASHINFER to the folder flashinfer/data "
                      "of the Python package flashinfer-python.")
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(nvcc nvcc PATHS /usr/local/cuda/bin)
  if(nvcc)
    set(CMAKE_CUDA_COMPILER ${nvcc})
  endif()
endif()
set(CMAKE_CUDA_ARCHITECTURES ${BATON_CUDA_ARCHITECTURES})
if(BATON_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${BATON_CCACHE})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
set(CMAKE_CUDA_STANDARD 20)
# CMake 3.25 has no compile option for CUDA with C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")

# In FlashInfer's own order: its CCCL must come before the toolkit's.
set(BATON_FLASHINFER_INCLUDES
    ${BATON_FLASHINFER}/cccl/libcudacxx/include ${BATON_FLASHINFER}/cccl/cub
    ${BATON_FLASHINFER}/cccl/thrust ${BATON_FLASHINFER}/include ${BATON_FLASHINFER}/cutlass/include
    ${BATON_FLASHINFER}/cutlass/tools/util/include)

# NCCL's header. Programs open the library itself at run time, and only for groups of several GPUs.
find_path(BATON_NCCL_INCLUDES nccl.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${baton_home}/nccl/include
  DOC "the folder of nccl.h; `./dev build cuda` downloads it where it is not installed")
if(NOT BATON_NCCL_INCLUDES)
  message(FATAL_ERROR "nccl.h is not installed. Run `./dev build cuda`, install libnccl-dev, or set "
                      "BATON_NCCL_INCLUDES to the folder nvidia/nccl/include of the Python package "
                      "nvidia-nccl-cu13.")
endif()
