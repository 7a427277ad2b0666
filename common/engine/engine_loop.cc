#include "common/engine/engine_loop.h"

#include "common/base/thread.h"

namespace baton {
namespace {

// Bounds how late a request ends whose deadline passes while the engine is idle.
constexpr Duration kIdleWait = std::chrono::milliseconds(20);

}  // namespace

EngineLoop::EngineLoop(Engine& engine, const std::string& thread_name)
    : thread_(StartThread(thread_name, [&engine](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          if (!engine.Step()) engine.WaitForWork(kIdleWait);
        }
      })) {}

}  // namespace baton
