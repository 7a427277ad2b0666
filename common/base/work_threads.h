#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace baton {

// Threads that run functions, which begin in the order of Post. The threads start with the first
// function. Thread-safe. Functions must not throw. The destructor waits until all functions that
// were posted have run.
class WorkThreads final {
 public:
  // `name`: as in StartThread.
  WorkThreads(std::string name, int count) : name_(std::move(name)), count_(count) {}
  ~WorkThreads();

  void Post(std::function<void()> work);
  // Drops the functions that have not begun.
  void DropWaiting();

 private:
  void Run(const std::stop_token& stop);

  const std::string name_;
  const int count_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> work_;
  std::vector<std::jthread> threads_;  // the last member, because the threads use the others
};

}  // namespace baton
