# baton_home: the folder of downloaded sources, the same as in ./dev.
if(DEFINED ENV{BATON_HOME})
  set(baton_home "$ENV{BATON_HOME}")
else()
  set(baton_home "$ENV{HOME}/.cache/baton")
endif()
