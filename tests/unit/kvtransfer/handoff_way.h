#pragma once

#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/fakes/fake_gpu.h"

namespace baton {

// A transport, and whether the arenas of both workers are in the memory of a GPU.
struct HandoffWay {
  std::string transport;
  bool on_gpu = false;

  void Apply(HandoffPair::Options& options) const {
    options.transport = transport;
    if (!on_gpu) return;
    static FakeGpu gpu;
    options.device = &gpu;
    options.dma = &gpu;
  }
};

inline void PrintTo(const HandoffWay& way, std::ostream* out) {
  *out << way.transport << (way.on_gpu ? "_gpu" : "");
}

inline auto HandoffWays() {
  return testing::Values(HandoffWay{"shm"},
                         HandoffWay{"tcp"},
                         HandoffWay{"cuda_ipc", true},
                         HandoffWay{"tcp", true},
                         HandoffWay{"nccl", true});
}

}  // namespace baton
