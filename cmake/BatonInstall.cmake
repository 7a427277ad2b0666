# `cmake --install`, and the .deb of CPack (`./dev package`).
include(GNUInstallDirs)

set(BATON_PROGRAMS baton baton-router baton-prefill baton-decode)
set(BATON_DOCUMENTS)
foreach(program IN LISTS BATON_PROGRAMS)
  # The tar.gz has its libraries in ../lib. RPATH instead of RUNPATH, because libraries that need other
  # libraries must find them there, too.
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${program} PRIVATE LINKER:--disable-new-dtags)

  set(man ${CMAKE_BINARY_DIR}/documents/${program}.1)
  set(completion ${CMAKE_BINARY_DIR}/documents/${program}.bash)
  add_custom_command(
    OUTPUT ${man} ${completion}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/documents
    # The manual states defaults for any user, not those of whoever builds.
    COMMAND ${CMAKE_COMMAND} -E env "BATON_HOME=~/.cache/baton" ${CMAKE_CROSSCOMPILING_EMULATOR}
            $<TARGET_FILE:${program}> --man-page > ${man}
    COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${program}> --bash-completion > ${completion}
    DEPENDS ${program}
    VERBATIM)
  list(APPEND BATON_DOCUMENTS ${man} ${completion})
  install(FILES ${man} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program})
endforeach()
# All that `cmake --install` needs.
add_custom_target(baton_install ALL DEPENDS ${BATON_DOCUMENTS})

install(TARGETS ${BATON_PROGRAMS} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(BATON_BUILD_CUDA)
  # Programs look for it beside themselves and in ../lib.
  install(TARGETS baton_cuda LIBRARY DESTINATION lib)
  add_dependencies(baton_install baton_cuda)
endif()
if(TARGET baton_mpi)
  # Not in the packages, which must not depend on MPI: `cmake --install BUILD --component mpi`.
  install(TARGETS baton_mpi LIBRARY DESTINATION lib COMPONENT mpi EXCLUDE_FROM_ALL)
endif()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(BATON_GRAMMAR)
  install(FILES ${BATON_XGRAMMAR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences RENAME xgrammar)
endif()
install(DIRECTORY deploy/kubernetes DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME baton)
set(CPACK_PACKAGE_VERSION ${BATON_VERSION})
set(CPACK_PACKAGE_CONTACT "The Baton maintainers <baton@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "disaggregated serving of large language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
# The dependencies are the packages of the libraries that the programs are linked with.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)  # deploy/package.sh states them
endif()
# Opened at run time by the KV transport verbs.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libibverbs1, ibverbs-providers")
include(CPack)
