# The functions that declare targets. Sources and dependencies are listed, never globbed.

# Stops the configure when a dependency is not declared yet. The order of add_subdirectory in the top
# CMakeLists.txt is the order of the layers.
function(baton_check_layers name)
  foreach(dep IN LISTS ARGN)
    if(dep MATCHES "^baton::" AND NOT TARGET ${dep})
      message(FATAL_ERROR "${name} depends on ${dep}, which is in a later layer (or does not exist)")
    endif()
  endforeach()
endfunction()

# baton_library(NAME SOURCES a.cc … DEPS baton::base absl::status …) declares baton_NAME, alias baton::NAME.
function(baton_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  baton_check_layers(${name} ${ARG_DEPS})
  if(ARG_SOURCES)
    add_library(baton_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(baton_${name} PUBLIC ${ARG_DEPS} PRIVATE baton_flags)
    target_include_directories(baton_${name} PUBLIC ${CMAKE_SOURCE_DIR})
    baton_precompile(baton_${name})
  else()
    add_library(baton_${name} INTERFACE)
    target_link_libraries(baton_${name} INTERFACE ${ARG_DEPS})
    target_include_directories(baton_${name} INTERFACE ${CMAKE_SOURCE_DIR})
  endif()
  add_library(baton::${name} ALIAS baton_${name})
endfunction()

# baton_binary(NAME SOURCES … DEPS …) declares the executable NAME in build/<preset>/bin.
function(baton_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  baton_check_layers(${name} ${ARG_DEPS})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton::cpu_check baton_flags)
  baton_precompile(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# Makes the umbrella target `umbrella` build `target` too.
function(baton_gather umbrella target)
  if(NOT TARGET ${umbrella})
    add_custom_target(${umbrella})
  endif()
  add_dependencies(${umbrella} ${target})
endfunction()

# baton_test(NAME SOURCES … DEPS … [LABELS unit] [TIMEOUT 60] [DATA] [ONE_THREAD] [LAUNCHER command …]
# [ARGUMENTS …]) declares a gtest binary and its ctest, which runs LAUNCHER, the binary and ARGUMENTS as one
# command. The target baton_tests_LABEL builds all tests of a label. A test runs in the root of the tree
# (tests/support/test_main.cc): define no absolute path of the tree, which would keep a compiler cache from serving
# another clone. DATA defines BATON_TEST_DATA, the path of tests/data. ONE_THREAD is for a long test without threads:
# the ThreadSanitizer build omits it, and the test aborts if it starts a thread.
function(baton_test name)
  cmake_parse_arguments(ARG "DATA;ONE_THREAD" "TIMEOUT" "SOURCES;DEPS;LABELS;LAUNCHER;ARGUMENTS" ${ARGN})
  baton_check_layers(${name} ${ARG_DEPS})
  if(ARG_ONE_THREAD)
    if(BATON_SANITIZE MATCHES "thread")
      return()
    endif()
    list(APPEND ARG_SOURCES ${CMAKE_SOURCE_DIR}/tests/support/one_thread.cc)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton::test_main baton_flags)
  baton_precompile(${name} test)
  if(ARG_DATA)
    target_compile_definitions(${name} PRIVATE BATON_TEST_DATA="tests/data")
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(BATON_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")  # code with sanitizers is several times slower
  elseif(CMAKE_CROSSCOMPILING)
    math(EXPR ARG_TIMEOUT "20 * ${ARG_TIMEOUT}")  # so is code in QEMU
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_LAUNCHER} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}> ${ARG_ARGUMENTS})
  # A clone that has not run its tests yet begins with those that may take longest.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if(BATON_SANITIZE MATCHES "thread")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT
      "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/tsan_suppressions.txt")
  endif()
  foreach(label IN LISTS ARG_LABELS)
    baton_gather(baton_tests_${label} ${name})
  endforeach()
endfunction()

# baton_soak(NAME) declares the ctest NAME_soak, with the label `soak`: it runs the disabled tests of the binary
# of baton_test NAME, which take minutes. `./dev test` without arguments omits it.
function(baton_soak name)
  if(NOT TARGET ${name})
    return()
  endif()
  add_test(NAME ${name}_soak COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}> --gtest_also_run_disabled_tests --gtest_filter=*DISABLED_*)
  set_tests_properties(${name}_soak PROPERTIES TIMEOUT 3000 LABELS soak)
endfunction()

# baton_benchmark(NAME SOURCES … DEPS …) declares a benchmark in build/<preset>/bench, which `./dev bench`
# runs. It must need no arguments and print JSON (Google Benchmark does so with $BENCHMARK_FORMAT).
function(baton_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark baton_flags)
  baton_precompile(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()

# baton_gpu_benchmark(NAME SOURCES … DEPS …) declares a benchmark in build/<preset>/bench that needs a GPU;
# its source describes its arguments. The target baton_gpu_benchmarks builds all of them.
function(baton_gpu_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  baton_check_layers(${name} ${ARG_DEPS})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  baton_gather(baton_gpu_benchmarks ${name})
endfunction()

# baton_fuzzer(NAME SOURCES … DEPS …) declares a libFuzzer target in build/<preset>/fuzz; its corpus is
# tests/fuzz/corpus/NAME. The target baton_fuzzers builds all of them. Without BATON_BUILD_FUZZERS nothing
# is declared.
function(baton_fuzzer name)
  if(NOT BATON_BUILD_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton_flags)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  baton_gather(baton_fuzzers ${name})
endfunction()
