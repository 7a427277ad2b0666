#include "common/http/http_limits.h"

#include <utility>

#include <fmt/format.h>

namespace baton {

ConnectionSlots::Slot::Slot(Slot&& other) noexcept
    : slots_(std::exchange(other.slots_, nullptr)),
      reserved_(other.reserved_),
      address_(std::move(other.address_)),
      over_limit_(std::move(other.over_limit_)) {}

void ConnectionSlots::Slot::Release() {
  if (slots_ != nullptr) std::exchange(slots_, nullptr)->Give(*this);
}

ConnectionSlots::Slot ConnectionSlots::Take(const std::string& address) {
  std::lock_guard lock(mutex_);
  Slot slot;
  slot.address_ = address;
  if (ordinary_ >= limits_.connections) {
    slot.over_limit_ = fmt::format("all {} connections are in use", limits_.connections);
  } else if (int& count = by_address_[address]; count >= limits_.per_address) {
    slot.over_limit_ =
        fmt::format("address {} has {} connections, the most that one address may have",
                    address,
                    limits_.per_address);
  } else {
    ++ordinary_;
    ++count;
    slot.slots_ = this;
    return slot;
  }
  slot.reserved_ = true;
  if (reserved_ < limits_.reserved) {
    ++reserved_;
    slot.slots_ = this;
  }
  return slot;
}

int ConnectionSlots::taken() const {
  std::lock_guard lock(mutex_);
  return ordinary_ + reserved_;
}

void ConnectionSlots::Give(const Slot& slot) {
  std::lock_guard lock(mutex_);
  if (slot.reserved_) {
    --reserved_;
    return;
  }
  --ordinary_;
  const auto found = by_address_.find(slot.address_);
  if (--found->second == 0) by_address_.erase(found);
}

ByteBudget::Share::Share(Share&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

ByteBudget::Share& ByteBudget::Share::operator=(Share&& other) noexcept {
  Release();
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool ByteBudget::Share::GrowTo(size_t bytes) {
  std::lock_guard lock(budget_->mutex_);
  const size_t more = bytes - bytes_;
  if (more > budget_->limit_ - budget_->used_) return false;
  budget_->used_ += more;
  bytes_ = bytes;
  return true;
}

void ByteBudget::Share::Release() {
  if (budget_ == nullptr) return;
  std::lock_guard lock(budget_->mutex_);
  budget_->used_ -= std::exchange(bytes_, 0);
}

size_t ByteBudget::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace baton
