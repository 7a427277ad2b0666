#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// A shared object of Baton that a program opens at run time, so that the program does not need the
// libraries that the shared object needs.
struct SharedObject {
  std::string_view what;    // for messages: "the CUDA backend"
  std::string_view file;    // "libbaton_cuda.so"
  std::string path;         // empty: `file` beside this program, or in ../lib or ../bin
  std::string_view advice;  // for messages: what the user can do when it is missing
};

// Opens `object` for the rest of the process: libraries such as CUDA and MPI keep state of the
// process, so that nobody may close them. Returns the handle for dlsym. NotFound when the shared
// object or one of its libraries is missing; the message states the places and the advice.
StatusOr<void*> OpenSharedObject(const SharedObject& object);

}  // namespace baton
