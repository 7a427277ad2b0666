# Compiles for 64-bit Arm on another machine (`./dev build arm64`): with the compiler of packages-arm64.txt and the
# distribution's libraries that cmake/arm64_root.sh unpacked in BATON_ARM64_ROOT. Programs run in QEMU's user mode.
if(NOT EXISTS ${BATON_ARM64_ROOT}/usr/include)
  message(FATAL_ERROR "BATON_ARM64_ROOT is '${BATON_ARM64_ROOT}', which has no usr/include. Run `./dev build arm64`, "
                      "or unpack the packages with cmake/arm64_root.sh and set BATON_ARM64_ROOT to their folder.")
endif()
# The checks of the compiler read this file, too.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BATON_ARM64_ROOT)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc-12)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
set(CMAKE_SYSROOT ${BATON_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${BATON_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${BATON_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${BATON_ARM64_ROOT}/usr/share/pkgconfig)

# $QEMU_CPU selects a processor; the default has every instruction set that QEMU knows.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${BATON_ARM64_ROOT})
