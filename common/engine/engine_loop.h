#pragma once

#include <string>
#include <thread>

#include "common/engine/engine.h"

namespace baton {

// The thread that steps an engine: as long as there is work it steps, else it sleeps. Stops after
// the step in progress and joins on destruction; requests still inside stay there. `engine`
// outlives it.
class EngineLoop final {
 public:
  EngineLoop(Engine& engine, const std::string& thread_name);

 private:
  std::jthread thread_;
};

}  // namespace baton
