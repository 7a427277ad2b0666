#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/collective/exchange_area.h"

namespace baton {

// One collective of a group.
struct CollectiveLayout {
  std::vector<int> ranks;  // the group's ranks that take part; member i is ranks[i]
  // Bytes of one slot. Larger transfers go through the slots in chunks. Memory is used only where
  // slots have been written.
  size_t slot_bytes = size_t{256} << 10;
};

// What a group's shared memory contains. Every process of the group passes the same layout.
struct GroupLayout {
  int ranks = 0;
  std::vector<CollectiveLayout> collectives;
};

// The memory that the processes of a group on one host share: a word that aborts the group, and the
// exchange areas of its collectives. The leader creates it; the followers open it from a descriptor
// that they inherit, or from the leader's. Pages are allocated when they are first written.
// Thread-safe.
class GroupMemory final {
 public:
  // InvalidArgument names what is wrong in the layout; ResourceExhausted when the system has no
  // memory for it.
  static StatusOr<std::unique_ptr<GroupMemory>> Create(const GroupLayout& layout);
  // Takes `fd`, a descriptor of the leader's memory. InvalidArgument when it is not a group's
  // memory, or that of another version or another layout.
  static StatusOr<std::unique_ptr<GroupMemory>> Open(UniqueFd fd, const GroupLayout& layout);
  // The same from descriptor `fd` of process `pid` of the same user, for processes that inherit
  // nothing from the leader, such as those that mpirun starts. NotFound when there is none.
  static StatusOr<std::unique_ptr<GroupMemory>> OpenOf(pid_t pid,
                                                       int fd,
                                                       const GroupLayout& layout);

  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;
  ~GroupMemory();

  // The descriptor closes on exec; whoever starts a follower dup()s it.
  int fd() const { return fd_.get(); }
  const GroupLayout& layout() const { return layout_; }
  // The area of layout().collectives[index].
  const ExchangeArea& area(size_t index) const { return areas_[index]; }

  // Ends every wait in the group: all calls of all ranks return Unavailable with `rank`, which is
  // the rank that is gone or late, and `message`. The first call counts; later ones only wake the
  // ranks again.
  void Abort(int rank, std::string_view message);
  bool aborted() const;
  // The rank that the first Abort named; nullopt until then.
  std::optional<int> aborted_by() const;
  // OK until Abort, then the error that all calls return.
  Status abort_status() const;

  // The rank for which `rank`, which did not come to `waiting`, waits itself in another collective,
  // followed to the end: the rank to blame. `rank` itself when it does not wait.
  int Culprit(int rank, int waiting) const;

 private:
  struct Header;
  GroupMemory(UniqueFd fd, std::byte* data, size_t bytes, const GroupLayout& layout);

  static StatusOr<std::unique_ptr<GroupMemory>> Map(UniqueFd fd, const GroupLayout& layout);
  Header& header() const;
  int WaitsFor(int rank) const;

  UniqueFd fd_;
  std::byte* data_;
  size_t bytes_;
  GroupLayout layout_;
  std::vector<ExchangeArea> areas_;
};

}  // namespace baton
