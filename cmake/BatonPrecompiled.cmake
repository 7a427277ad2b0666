# Precompiled headers. Each group is a header in cmake/precompiled, compiled once and shared by all targets
# of the group. It contains headers of other projects only. A source still includes all that it uses: the
# preset fuzz and `./dev tidy` compile without precompiled headers.

# Sets `out` to whether `target` needs the generated code, itself or through what it links.
function(baton_needs_proto out target)
  set(${out} FALSE PARENT_SCOPE)
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(aliased ${target} ALIASED_TARGET)
  if(aliased)
    set(target ${aliased})
  endif()
  get_target_property(imported ${target} IMPORTED)
  if(imported)
    return()
  endif()
  get_property(known TARGET ${target} PROPERTY baton_needs_proto)
  if("${known}" STREQUAL "")
    set(known FALSE)
    get_target_property(dependencies ${target} LINK_LIBRARIES)
    foreach(dependency IN LISTS dependencies)
      baton_needs_proto(needs "${dependency}")
      if(needs)
        set(known TRUE)
        break()
      endif()
    endforeach()
    if(target STREQUAL baton_proto)
      set(known TRUE)
    endif()
    set_property(TARGET ${target} PROPERTY baton_needs_proto ${known})
  endif()
  set(${out} ${known} PARENT_SCOPE)
endfunction()

# The code of tests is compiled with fewer optimisations than what it tests, in two thirds of the time.
function(baton_test_flags target)
  if(NOT BATON_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endif()
endfunction()

# The target that compiles cmake/precompiled/GROUP.h, with the macros and flags of the targets that share it.
function(baton_precompiled_group group)
  if(TARGET baton_precompiled_${group})
    return()
  endif()
  add_library(baton_precompiled_${group} OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled/empty.cc)
  target_link_libraries(baton_precompiled_${group} PRIVATE ${ARGN} fmt::fmt absl::flat_hash_map
                        absl::statusor Threads::Threads baton_flags)
  if(group MATCHES "^test")
    baton_test_flags(baton_precompiled_${group})
  endif()
  if(group MATCHES "rpc$")
    # Not the generated code itself, which would have to exist first.
    target_link_libraries(baton_precompiled_${group} PRIVATE gRPC::grpc++ protobuf::libprotobuf)
    target_compile_options(baton_precompiled_${group} PRIVATE ${BATON_PROTO_OPTIONS})
  endif()
  target_precompile_headers(baton_precompiled_${group} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${CMAKE_SOURCE_DIR}/cmake/precompiled/${group}.h>)
endfunction()

# baton_precompile(TARGET [test]) gives the C++ sources of TARGET the precompiled headers that fit what it links.
function(baton_precompile target)
  if(NOT BATON_PRECOMPILE_HEADERS)
    return()
  endif()
  set(group ${ARGN})
  baton_needs_proto(rpc ${target})
  if(rpc)
    list(APPEND group rpc)
  elseif(NOT group)
    set(group std)
  endif()
  string(JOIN "_" group ${group})
  if(group MATCHES "^test")
    # g++ 12 crashes when a source has other optimisations than its precompiled header.
    baton_test_flags(${target})
    baton_precompiled_group(${group} GTest::gtest)
  else()
    baton_precompiled_group(${group})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    # As in the libraries, with which it shares the precompiled headers; the default is -fPIE.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  endif()
  # The macros of these two must be the same as in the precompiled header.
  target_link_libraries(${target} PRIVATE fmt::fmt Threads::Threads)
  target_precompile_headers(${target} REUSE_FROM baton_precompiled_${group})
  # With -fpch-preprocess, ccache preprocesses no header that is precompiled. g++ 12 gives these warnings wrongly
  # for operator+ of strings (as in GCC bug 105329) when the system headers are precompiled.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess;-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>")
endfunction()
