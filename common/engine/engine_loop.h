#pragma once

#include <string>
#include <thread>

#include "common/engine/engine.h"

namespace baton {

// The thread that steps an engine. It steps while there is work, and waits otherwise. The
// destructor stops the thread after the step in progress and joins it; requests that are still
// active stay in the engine. `engine` outlives it.
class EngineLoop final {
 public:
  EngineLoop(Engine& engine, const std::string& thread_name);

 private:
  std::jthread thread_;
};

}  // namespace baton
