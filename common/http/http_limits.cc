#include "common/http/http_limits.h"

#include <utility>

#include <fmt/format.h>

namespace baton {

ConnectionSlots::Slot::Slot(Slot&& other) noexcept
    : slots_(std::exchange(other.slots_, nullptr)),
      reserved_(other.reserved_),
      address_(std::move(other.address_)),
      over_limit_(std::move(other.over_limit_)),
      over_address_limit_(other.over_address_limit_) {}

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
    slot.over_address_limit_ = true;
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
  if (!budget_->Take(bytes - bytes_)) return false;
  bytes_ = bytes;
  return true;
}

void ByteBudget::Share::Release() {
  if (budget_ != nullptr) budget_->Give(std::exchange(bytes_, 0));
}

bool ByteBudget::Take(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > limit_ - used_) return false;
  if (whole_ != nullptr && !whole_->Take(bytes)) return false;
  used_ += bytes;
  return true;
}

void ByteBudget::Give(size_t bytes) {
  if (whole_ != nullptr) whole_->Give(bytes);
  std::lock_guard lock(mutex_);
  used_ -= bytes;
}

size_t ByteBudget::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace baton
