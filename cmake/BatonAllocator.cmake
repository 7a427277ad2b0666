# baton::allocator is the malloc of the programs that link it: jemalloc, or nothing besides the C library's.
option(BATON_JEMALLOC "Link jemalloc to the workers and their benchmarks" ON)
add_library(baton_allocator INTERFACE)
add_library(baton::allocator ALIAS baton_allocator)
# The sanitizers have an allocator of their own.
if(NOT BATON_JEMALLOC OR BATON_SANITIZE)
  return()
endif()
pkg_check_modules(JEMALLOC jemalloc)
if(NOT JEMALLOC_FOUND)
  message(STATUS "jemalloc was not found (the package libjemalloc-dev): the programs use the C library's malloc, "
                 "with which the first mask of a new schema takes a fifth longer")
  return()
endif()
# Before the C library. Without --no-as-needed, some linkers drop it.
set(BATON_ALLOCATOR jemalloc)
target_link_options(baton_allocator INTERFACE
  LINKER:--push-state,--no-as-needed ${JEMALLOC_LINK_LIBRARIES} LINKER:--pop-state)
