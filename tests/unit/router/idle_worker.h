#pragma once

#include <future>
#include <variant>
#include <vector>

#include "router/loop/core_loop.h"

namespace baton::router {

// A worker that does nothing but report the commands that it receives to the test.
class IdleWorkerLink final : public WorkerLink {
 public:
  bool Send(std::vector<WorkerCommand> commands) override {
    for (const WorkerCommand& command : commands) {
      if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
        dispatched_.set_value(*dispatch);
      }
      if (std::holds_alternative<CancelCommand>(command)) cancelled_.set_value();
    }
    return true;
  }
  void Drop(const Status&) override {}
  std::future<DispatchCommand> dispatched() { return dispatched_.get_future(); }
  std::future<void> cancelled() { return cancelled_.get_future(); }

 private:
  std::promise<DispatchCommand> dispatched_;
  std::promise<void> cancelled_;
};

inline WorkerInfo IdleWorker() {
  WorkerInfo info;
  info.id = WorkerId("worker");
  info.boot = BootId(1);
  info.can_decode = true;
  info.block_tokens = 16;
  info.blocks = 100;
  info.max_sequences = 4;
  info.context_length = 64;
  info.vocabulary = 256;
  info.max_step_tokens = 64;
  return info;
}

}  // namespace baton::router
