# The compiler settings of all targets of Baton.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(BATON_CCACHE ccache)
if(BATON_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BATON_CCACHE})
endif()
find_program(BATON_MOLD mold)
if(BATON_MOLD AND NOT BATON_SANITIZE)
  add_link_options(-fuse-ld=mold)
  if(CMAKE_CROSSCOMPILING)
    # A cross compiler finds ld.mold only in the folder of its own tools and in those of -B.
    get_filename_component(mold_folder ${BATON_MOLD} DIRECTORY)
    add_link_options(-B${mold_folder})
  endif()
endif()

# Flags for our own targets only, not for generated and third-party code.
add_library(baton_flags INTERFACE)
target_compile_options(baton_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
# Warnings are errors with the compilers of CI; newer compilers may have more warnings. Not in g++ builds
# with sanitizers, because instrumented code causes wrong data-flow warnings.
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13 AND NOT BATON_SANITIZE) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  target_compile_options(baton_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
target_include_directories(baton_flags INTERFACE ${CMAKE_SOURCE_DIR})

# Line tables are enough for stack traces and make the objects a third of their size.
add_compile_options($<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-g1>)

# g++ collects its garbage whenever its heap has grown by a third: without that it is a tenth faster, and stays
# below 1 GB.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=2000000>)

if(BATON_SANITIZE)
  add_compile_options(-fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BATON_SANITIZE})
  if(BATON_SANITIZE MATCHES "address.*undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With g++ these two checks take nearly half of the compile time, and AddressSanitizer detects the
    # same accesses. The fuzzers, built with clang, keep them.
    add_compile_options(-fno-sanitize=null,object-size)
  endif()
  if(BATON_SANITIZE MATCHES "thread")
    # ThreadSanitizer does not support stand-alone fences; Asio's locks order the same memory.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
