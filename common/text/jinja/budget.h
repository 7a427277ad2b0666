#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "common/base/status.h"

namespace baton::jinja {

// The limits of one rendering. Counts the memory of live values and the work done, and calls
// `cancelled` at intervals. Not thread-safe. Must outlive the values whose memory it counts.
class Budget final {
 public:
  // `cancelled` may be empty.
  Budget(uint64_t steps, size_t memory, std::function<bool()> cancelled = nullptr)
      : steps_left_(steps), memory_limit_(memory), cancelled_(std::move(cancelled)) {
    ask_below_ = cancelled_ ? steps : 0;
  }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Subtracts work from the budget. Errors: ResourceExhausted when the steps or the memory are used
  // up; Cancelled.
  Status Spend(uint64_t steps) {
    if (steps > steps_left_) return OutOfSteps();
    steps_left_ -= steps;
    if (steps_left_ < ask_below_) BATON_RETURN_IF_ERROR(CheckCancelled());
    return memory_used_ > memory_limit_ ? OutOfMemory(0) : OkStatus();
  }
  // Spends the steps of work on `bytes` bytes of text.
  Status SpendOnBytes(size_t bytes) { return Spend(bytes / kBytesPerStep); }
  // ResourceExhausted when a value of `bytes` would not fit. To be called before a large value is
  // made.
  Status CheckRoom(size_t bytes) const {
    return bytes > memory_limit_ || memory_used_ > memory_limit_ - bytes ? OutOfMemory(bytes)
                                                                         : OkStatus();
  }

  void Charge(size_t bytes) { memory_used_ += bytes; }
  void Release(size_t bytes) { memory_used_ -= bytes; }

 private:
  static constexpr size_t kBytesPerStep = 128;
  Status CheckCancelled() {
    constexpr uint64_t kStepsBetween = 1 << 16;
    ask_below_ = steps_left_ > kStepsBetween ? steps_left_ - kStepsBetween : 0;
    return cancelled_() ? absl::CancelledError("the client left") : OkStatus();
  }
  static Status OutOfSteps() {
    return absl::ResourceExhaustedError("the template needs more steps than it may take");
  }
  Status OutOfMemory(size_t bytes) const {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "the template's values need {} bytes; they may take {}",
                      memory_used_ + bytes,
                      memory_limit_);
  }

  uint64_t steps_left_;
  size_t memory_limit_;
  size_t memory_used_ = 0;
  std::function<bool()> cancelled_;
  uint64_t ask_below_ = 0;  // call `cancelled` again when steps_left_ is less than this
};

// Charges memory to a budget during its lifetime; a default-constructed one charges nothing.
class MemoryCharge final {
 public:
  MemoryCharge() = default;
  MemoryCharge(Budget& budget, size_t bytes) : budget_(&budget), bytes_(bytes) {
    budget.Charge(bytes);
  }
  ~MemoryCharge() {
    if (budget_ != nullptr) budget_->Release(bytes_);
  }
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

 private:
  Budget* budget_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace baton::jinja
