# XGrammar's C++ core as the target xgrammar: the automata of constrained output (common/grammar).
option(BATON_GRAMMAR "Build constrained output; without it, requests with a grammar are refused" ON)
if(NOT BATON_GRAMMAR)
  message(STATUS "BATON_GRAMMAR is OFF: requests for constrained output are refused")
  return()
endif()

set(BATON_XGRAMMAR "${baton_home}/xgrammar" CACHE PATH
    "The sources of the Python package xgrammar; `./dev build` downloads them")
if(NOT EXISTS ${BATON_XGRAMMAR}/include/xgrammar/matcher.h)
  message(FATAL_ERROR "BATON_XGRAMMAR is '${BATON_XGRAMMAR}', which has no include/xgrammar/matcher.h. "
                      "Run `./dev build`, set BATON_XGRAMMAR to the unpacked source package xgrammar 0.2.8 of PyPI, "
                      "or configure with -DBATON_GRAMMAR=OFF, without constrained output.")
endif()

set(xgrammar_sources)
foreach(source IN ITEMS compiled_grammar config earley_parser fsm fsm_builder grammar grammar_builder
                        grammar_compiler grammar_functor grammar_matcher grammar_parser grammar_printer
                        json_schema_converter lark_converter regex_converter structural_tag suffix_automata
                        testing tokenizer_info)
  list(APPEND xgrammar_sources ${BATON_XGRAMMAR}/cpp/${source}.cc)
endforeach()
set(xgrammar_others support/logging support/recursion_guard)
foreach(style IN ITEMS cohere deepseek glm kimi_k3 minimax minimax_m3 qwen)
  list(APPEND xgrammar_others converter_ext/${style})
endforeach()
foreach(source IN LISTS xgrammar_others)
  list(APPEND xgrammar_sources ${BATON_XGRAMMAR}/cpp/${source}.cc)
endforeach()
add_library(xgrammar STATIC ${xgrammar_sources})
target_include_directories(xgrammar SYSTEM PUBLIC
  ${BATON_XGRAMMAR}/include ${BATON_XGRAMMAR}/3rdparty/picojson ${BATON_XGRAMMAR}/3rdparty/dlpack/include)
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
# Its masks are computed beside every step, so it is optimised like a kernel. Its warnings are its own.
target_compile_options(xgrammar PRIVATE -w)
target_link_libraries(xgrammar PRIVATE Threads::Threads)
# clang 14 does not compile its recursive types as C++20.
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
