#include "kernels/cpu/weight_memory.h"

#include <utility>

namespace baton::cpu {
namespace {

// Pages are allocated only on first touch, so the unused rest of the last buffer costs no memory.
constexpr size_t kBufferBytes = size_t{64} << 20;
constexpr size_t kAlignment = 64;

}  // namespace

StatusOr<std::shared_ptr<std::byte>> WeightMemory::Allocate(size_t bytes) {
  if (bytes > kBufferBytes / 4) {
    BATON_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> own, device_.Allocate(bytes, Sharing::kPrivate));
    return std::shared_ptr<std::byte>(own, own->data());
  }
  if (buffer_ == nullptr || bytes > buffer_->size() - used_) {
    BATON_ASSIGN_OR_RETURN(buffer_, device_.Allocate(kBufferBytes, Sharing::kPrivate));
    used_ = 0;
  }
  const size_t at = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ > buffer_->size()) used_ = buffer_->size();
  return std::shared_ptr<std::byte>(buffer_, buffer_->data() + at);
}

}  // namespace baton::cpu
