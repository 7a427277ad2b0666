#pragma once

#include <mpi.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/collective/mpi_world.h"

namespace baton {

// The memory of the messages of one call. When a call ends with an error, MPI may still use the
// memory, which the runtime then keeps.
struct MpiBuffers {
  std::vector<std::byte> out;
  std::vector<std::byte> in;
};

// A message that one call sends to a rank or receives from it.
struct MpiMessage {
  int peer;  // rank of the world
  bool is_send;
  std::span<std::byte> bytes;  // inside MpiBuffers
};

struct MpiWait {
  int tag;
  Duration limit;
  Duration busy_poll;
  bool abortable = true;  // the wait ends when the group is aborted
};

// A letter that MPI has not finished sending, or receiving.
struct OpenLetter {
  MPI_Request request = MPI_REQUEST_NULL;
  MpiLetter letter;
};

// MPI in this process: messages between two ranks with bounded waits, and the notice that aborts
// the group. MPI itself has no bounds. Only calls of MPI that return at once are made after the
// start, one at a time under a mutex, so that MPI needs no thread support beyond
// MPI_THREAD_SERIALIZED. Thread-safe.
class MpiRuntime final {
 public:
  static StatusOr<std::unique_ptr<MpiRuntime>> Start();
  ~MpiRuntime();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int ranks_here() const { return ranks_here_; }  // on this host
  const std::vector<int>& first_on_host() const { return first_on_host_; }

  // Sends and receives all of `messages`, which lie in `buffers`. Messages between two ranks with
  // one tag arrive in the order of the calls. DeadlineExceeded names the rank that did not come and
  // aborts the group; Unavailable: the group is aborted, or MPI failed.
  Status Exchange(const std::vector<MpiMessage>& messages,
                  const std::shared_ptr<MpiBuffers>& buffers,
                  const MpiWait& wait);

  // Sends the notice to all ranks. The first abort counts.
  void Abort(int rank, std::string_view message);
  Status abort_status();

  // Sends `bytes` with `wait.tag`. Returns when at most `ahead` bytes of all such calls wait for
  // receivers. Errors: as Exchange.
  Status SendAhead(int to, std::span<const std::byte> bytes, size_t ahead, const MpiWait& wait);

  // As in MpiWorld.
  Status Post(int to, std::string bytes);
  StatusOr<std::optional<MpiLetter>> Take(Duration timeout, Duration pause);
  void Close();

 private:
  struct AbortNotice {
    int rank = 0;
    std::array<char, 252> message = {};  // ends with a zero
  };
  // The requests of one call.
  struct Pending {
    std::vector<MPI_Request> requests;
    std::vector<int> peers;
    std::vector<int> bytes;  // that a receive must bring; -1 for a send
  };

  // A message of SendAhead that MPI has not finished sending.
  struct Ahead {
    Pending pending;
    std::vector<std::byte> bytes;
  };

  MpiRuntime() = default;
  // Fills first_on_host_ and ranks_here_.
  Status FindHosts();
  // Under the mutex: MPI can be used.
  Status Usable();
  // Under the mutex: the letter that has arrived, if there is one.
  StatusOr<std::optional<MpiLetter>> ReceiveLetter();
  void ForgetSentLetters();
  // Lets MPI send the messages of SendAhead. Returns the bytes that are not sent yet.
  StatusOr<size_t> SendMore();
  // The life of the thread that does so while the callers compute.
  void KeepSending(const std::stop_token& stop);
  Status Post(const std::vector<MpiMessage>& messages, int tag, Pending& pending);
  // Lets MPI make progress. True when all requests are complete.
  StatusOr<bool> Test(Pending& pending);
  void ReceiveAbortNotice();
  void SetAborted(int rank, std::string_view message);
  // Cancels what is incomplete and keeps the memory that MPI may still use.
  void Abandon(Pending& pending, const std::shared_ptr<MpiBuffers>& buffers);
  Status TooLate(const Pending& pending, const MpiWait& wait);
  // True if all ranks come within the limit.
  bool AllAreClosing();

  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int ranks_here_ = 1;
  std::vector<int> first_on_host_;

  std::mutex mutex_;  // of all calls of MPI and of what follows
  bool closed_ = false;
  bool aborted_ = false;
  AbortNotice abort_;                      // if aborted_
  AbortNotice incoming_;                   // of notice_
  MPI_Request notice_ = MPI_REQUEST_NULL;  // receives the notice of another rank
  std::vector<MPI_Request> sent_notices_;
  std::vector<MPI_Request> abandoned_requests_;
  std::vector<std::shared_ptr<MpiBuffers>> abandoned_;
  std::deque<OpenLetter> sent_letters_;  // a deque, because MPI uses the memory of the letters
  std::optional<OpenLetter> receiving_;
  std::deque<Ahead> ahead_;
  std::condition_variable_any sends_ahead_;
  std::jthread sender_;  // started by the first SendAhead; last: it uses all other members
};

}  // namespace baton
