#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace baton::router {

// A few threads that run what clients ask for, in turns: while several clients wait, each gets one
// job run before any gets a second one, however many it has posted. Jobs are not interrupted, so
// one thread of several runs only small jobs: large ones never hold all threads. Thread-safe. The
// destructor drops what has not begun.
class FairThreads final {
 public:
  // A job on more bytes than this is large.
  static constexpr size_t kSmallBytes = size_t{64} << 10;

  FairThreads(const std::string& name, size_t count);
  ~FairThreads();

  // Runs `run`, which works on `bytes` bytes of input, in one of the turns of `client`.
  void Post(const std::string& client, size_t bytes, std::function<void()> run);

 private:
  using Job = std::function<void()>;

  // The jobs of one size that wait.
  class Turns final {
   public:
    bool empty() const { return order_.empty(); }
    void Push(const std::string& client, Job job);
    Job Pop();

   private:
    std::map<std::string, std::deque<Job>> jobs_;  // none is empty
    std::deque<std::string> order_;                // the clients that wait, the next one first
  };

  void Run(bool takes_large);

  std::mutex mutex_;  // guards all but threads_
  std::condition_variable ready_;
  Turns small_;
  Turns large_;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace baton::router
