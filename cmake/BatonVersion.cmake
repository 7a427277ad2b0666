# baton_version(OUT FOLDER FALLBACK): sets OUT to the version of the git checkout in FOLDER, by its latest tag
# v*: "0.2.0" at the tag v0.2.0, "0.2.0+5.g1a2b3c4" five commits later. Without such a tag, or without git: FALLBACK.
# A new tag configures the build again.
function(baton_version out folder fallback)
  set(${out} ${fallback} PARENT_SCOPE)
  find_program(BATON_GIT git)
  if(NOT BATON_GIT OR NOT EXISTS ${folder}/.git)
    return()
  endif()
  execute_process(COMMAND ${BATON_GIT} -C ${folder} rev-parse --path-format=absolute --git-path refs/tags
                  OUTPUT_VARIABLE tags OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT CMAKE_SCRIPT_MODE_FILE AND IS_DIRECTORY "${tags}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tags})
  endif()
  execute_process(COMMAND ${BATON_GIT} -C ${folder} describe --tags --match "v[0-9]*"
                  OUTPUT_VARIABLE described RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    return()
  endif()
  string(REGEX REPLACE "^v" "" described "${described}")
  string(REGEX REPLACE "-([0-9]+)-(g[0-9a-f]+)$" "+\\1.\\2" described "${described}")
  set(${out} ${described} PARENT_SCOPE)
endfunction()
