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

# baton_build_version(OUT FOLDER FALLBACK): as baton_version, but also tells builds between two tags apart, by their
# commit and by changes that are not committed: "0.1.0+g1a2b3c4" without a tag, "0.2.0+5.g1a2b3c4.dirty", "0.2.0+dirty".
function(baton_build_version out folder fallback)
  baton_version(version ${folder} ${fallback})
  set(${out} ${version} PARENT_SCOPE)
  if(NOT BATON_GIT OR NOT EXISTS ${folder}/.git)
    return()
  endif()
  execute_process(COMMAND ${BATON_GIT} -C ${folder} describe --always --exclude "*" --dirty
                  OUTPUT_VARIABLE commit RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    return()
  endif()
  execute_process(COMMAND ${BATON_GIT} -C ${folder} describe --tags --match "v[0-9]*" --exact-match
                  RESULT_VARIABLE no_tag OUTPUT_QUIET ERROR_QUIET)
  set(build "")
  if(no_tag AND NOT version MATCHES "[+]")
    string(REGEX REPLACE "-dirty$" "" hash "${commit}")
    set(build "g${hash}")
  endif()
  if(commit MATCHES "-dirty$")
    list(APPEND build dirty)
  endif()
  list(JOIN build "." build)
  if(build AND NOT version MATCHES "[+]")
    set(${out} "${version}+${build}" PARENT_SCOPE)
  elseif(build)
    set(${out} "${version}.${build}" PARENT_SCOPE)
  endif()
endfunction()
