#include "kvtransfer/wire/window_table.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/take_front.h"
#include "kvtransfer/wire/byte_ranges.h"
#include "kvtransfer/wire/frame.h"

namespace baton {

class WindowTable::TableRegion final : public Region {
 public:
  TableRegion(WindowTable& table, uint32_t id) : table_(table), id_(id) {}
  ~TableRegion() override {
    for (const auto& [key, window] : table_.windows_) {
      BATON_CHECK(window.region != id_, "region {} is unregistered with an open window", id_);
    }
    table_.regions_.erase(id_);
  }
  uint32_t id() const override { return id_; }

 private:
  WindowTable& table_;
  const uint32_t id_;
};

std::unique_ptr<Region> WindowTable::Add(const Buffer& buffer) {
  const uint32_t id = next_region_++;
  regions_[id] = {&buffer, buffer.data(), buffer.size(), buffer.shared_fd()};
  return std::make_unique<TableRegion>(*this, id);
}

const WindowTable::Memory* WindowTable::Find(uint32_t region) const {
  const auto found = regions_.find(region);
  return found == regions_.end() ? nullptr : &found->second;
}

Status WindowTable::Open(WriteWindow window) {
  const Memory* memory = Find(window.region);
  if (memory == nullptr) return InvalidArgument("the window's region {} is unknown", window.region);
  uint64_t end = 0;
  std::vector<ByteRange> joined;
  for (const ByteRange& range : window.ranges) {
    if (range.offset < end || range.bytes > memory->bytes ||
        range.offset > memory->bytes - range.bytes) {
      return InvalidArgument(
          "window range {}+{}: ranges must ascend from {} and stay inside the {} bytes of region "
          "{}",
          range.offset,
          range.bytes,
          end,
          memory->bytes,
          window.region);
    }
    end = range.offset + range.bytes;
    AppendRange(joined, range);
  }
  window.ranges = std::move(joined);
  const uint64_t key = window.key;
  if (!windows_.try_emplace(key, std::move(window)).second) {
    return MakeStatus(StatusCode::kAlreadyExists, "a window with that key is open");
  }
  return OkStatus();
}

const WriteWindow* WindowTable::FindWindow(uint64_t key) const {
  const auto found = windows_.find(key);
  return found == windows_.end() ? nullptr : &found->second;
}

bool WindowTable::Remove(uint64_t key) {
  return windows_.erase(key) > 0;
}

bool WindowTable::Close(uint64_t key) {
  const auto found = windows_.find(key);
  if (found == windows_.end()) return false;
  Arrival closed;
  closed.kind = Arrival::Kind::kClosed;
  closed.window_key = key;
  closed.region = found->second.region;
  windows_.erase(found);
  arrivals_.push_back(std::move(closed));
  return true;
}

Status WindowTable::CheckWrite(uint64_t key,
                               uint32_t region,
                               std::span<const ByteRange> written) const {
  const auto found = windows_.find(key);
  if (found == windows_.end() || found->second.region != region) {
    return MakeStatus(StatusCode::kNotFound, "no such write window in region {}", region);
  }
  return CheckDestinations(written, found->second.ranges);
}

size_t WindowTable::TakeArrivals(std::span<Arrival> out) {
  return TakeFront(arrivals_, out);
}

}  // namespace baton
