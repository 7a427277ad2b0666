#include "common/rpc/stranger_load.h"

#include <algorithm>
#include <utility>

namespace baton {

StrangerLoad::Share::Share(StrangerLoad& load,
                           std::function<bool()> proven,
                           std::function<void()> end)
    : load_(load), proven_(std::move(proven)), end_(std::move(end)) {
  load_.shares_.insert(this);
}

StrangerLoad::Share::~Share() {
  Remove(bytes_);
  load_.shares_.erase(this);
}

void StrangerLoad::Share::Add(size_t bytes) {
  bytes_ += bytes;
  load_.bytes_ += bytes;
  if (load_.bytes_ > load_.max_bytes_) load_.EndLargest();
}

void StrangerLoad::Share::Remove(size_t bytes) {
  bytes = std::min(bytes, bytes_);  // EndLargest may have removed them
  bytes_ -= bytes;
  load_.bytes_ -= bytes;
}

void StrangerLoad::EndLargest() {
  Share* largest = nullptr;
  for (Share* const share : shares_) {
    if (share->proven_()) {
      share->Remove(share->bytes_);
    } else if (largest == nullptr || share->bytes_ > largest->bytes_) {
      largest = share;
    }
  }
  if (bytes_ <= max_bytes_ || largest == nullptr) return;
  largest->Remove(largest->bytes_);
  largest->end_();
}

}  // namespace baton
