# cmake -D FOLDER=checkout -D FALLBACK=0.1.0 -D TEMPLATE=version.cc.in -D SOURCE=version.cc -P WriteVersion.cmake writes
# the source that states the version of a build (baton_build_version). Runs with each build; an unchanged source
# is left alone, so that nothing is compiled or linked again.
include(${CMAKE_CURRENT_LIST_DIR}/BatonVersion.cmake)
baton_build_version(version ${FOLDER} ${FALLBACK})
configure_file(${TEMPLATE} ${SOURCE} @ONLY)
