#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace baton {

// Shares out a server's connections: at most `connections` in all and `per_address` of one client
// address. Beyond these limits, `reserved` more are taken, which are for probes alone. Thread-safe;
// outlives its slots.
class ConnectionSlots final {
 public:
  struct Limits {
    int connections = 0;
    int per_address = 0;
    int reserved = 0;
  };

  // One connection's place, given back by the destructor.
  class Slot final {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept;
    Slot& operator=(Slot&& other) = delete;
    ~Slot() { Release(); }

    // Gives it back early.
    void Release();
    bool held() const { return slots_ != nullptr; }
    // Of the client.
    const std::string& address() const { return address_; }
    // Over the limit: for probes alone.
    bool reserved() const { return reserved_; }
    // Names the limit that was reached; empty for an ordinary slot.
    const std::string& over_limit() const { return over_limit_; }

   private:
    friend class ConnectionSlots;
    ConnectionSlots* slots_ = nullptr;
    bool reserved_ = false;
    std::string address_;
    std::string over_limit_;
  };

  explicit ConnectionSlots(const Limits& limits) : limits_(limits) {}

  // A slot for a client of that address; not held when the reserved ones are in use, too.
  Slot Take(const std::string& address);
  int taken() const;

 private:
  void Give(const Slot& slot);

  const Limits limits_;
  mutable std::mutex mutex_;  // guards what follows
  int ordinary_ = 0;
  int reserved_ = 0;
  std::map<std::string, int> by_address_;  // of ordinary ones
};

// A number of bytes that many share. Thread-safe; outlives its shares.
class ByteBudget final {
 public:
  // What one of them holds, given back by the destructor. Not thread-safe.
  class Share final {
   public:
    Share() = default;
    explicit Share(ByteBudget& budget) : budget_(&budget) {}
    Share(Share&& other) noexcept;
    Share& operator=(Share&& other) noexcept;
    ~Share() { Release(); }

    // Makes the share `bytes` large; false when the budget does not have the difference.
    bool GrowTo(size_t bytes);
    void Release();

   private:
    ByteBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit ByteBudget(size_t limit) : limit_(limit) {}

  size_t used() const;

 private:
  const size_t limit_;
  mutable std::mutex mutex_;
  size_t used_ = 0;  // guarded by mutex_
};

}  // namespace baton
