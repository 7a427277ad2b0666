#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>

#include "kvtransfer/transport.h"

namespace baton {

// Registered memory by id, and the write windows into it. The only place that decides whether bytes
// from outside may land. Owned by a transport; its thread only.
class WindowTable final {
 public:
  struct Memory {
    const Buffer* buffer = nullptr;
    std::byte* data = nullptr;  // Buffer::data()
    uint64_t bytes = 0;
    int shared_fd = -1;
  };

  // The region removes itself from the table, so the table must outlive it.
  std::unique_ptr<Region> Add(const Buffer& buffer);
  // Null for an unknown id.
  const Memory* Find(uint32_t region) const;

  // Joins adjacent ranges of the window.
  Status Open(WriteWindow window);
  // Removes the window: no further bytes may land. True if it existed.
  bool Remove(uint64_t key);
  // As Remove, and also reports kClosed as an arrival.
  bool Close(uint64_t key);
  // The open window of `key`, or null.
  const WriteWindow* FindWindow(uint64_t key) const;
  // OK if the ranges `written` lie in the window of `key` in `region`. NotFound: no such window;
  // PermissionDenied: a range lies outside of it.
  Status CheckWrite(uint64_t key, uint32_t region, std::span<const ByteRange> written) const;

  void Report(Arrival arrival) { arrivals_.push_back(std::move(arrival)); }
  size_t arrivals() const { return arrivals_.size(); }  // not taken yet
  // Whether too many arrivals wait to be taken, so that no further frame should be read.
  bool is_behind() const { return arrivals_.size() >= kMaxArrivals; }
  size_t TakeArrivals(std::span<Arrival> out);

 private:
  class TableRegion;

  static constexpr size_t kMaxArrivals = 256;  // a note among them can be 100 kB

  std::map<uint32_t, Memory> regions_;
  uint32_t next_region_ = 0;
  std::unordered_map<uint64_t, WriteWindow> windows_;
  std::deque<Arrival> arrivals_;
};

}  // namespace baton
