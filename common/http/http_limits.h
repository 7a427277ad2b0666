#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace baton {

// Limits a server's connections: at most `connections` in all and `per_address` for each client
// address. Beyond these limits `reserved` more are admitted, which may only call probes.
// Thread-safe. Must outlive its slots.
class ConnectionSlots final {
 public:
  struct Limits {
    int connections = 0;
    int per_address = 0;
    int reserved = 0;
  };

  // The slot of one connection. The destructor gives it back.
  class Slot final {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept;
    Slot& operator=(Slot&& other) = delete;
    ~Slot() { Release(); }

    // Gives the slot back early.
    void Release();
    bool held() const { return slots_ != nullptr; }
    // The client's address.
    const std::string& address() const { return address_; }
    // True for a connection over the limits, which may only call probes.
    bool reserved() const { return reserved_; }
    // A message that names the limit that was reached; empty for an ordinary slot.
    const std::string& over_limit() const { return over_limit_; }
    // Whether that limit is the address' own.
    bool over_address_limit() const { return over_address_limit_; }

   private:
    friend class ConnectionSlots;
    ConnectionSlots* slots_ = nullptr;
    bool reserved_ = false;
    std::string address_;
    std::string over_limit_;
    bool over_address_limit_ = false;
  };

  explicit ConnectionSlots(const Limits& limits) : limits_(limits) {}

  // Returns a slot for a client of that address, or one that is not held() when all reserved slots
  // are in use, too.
  Slot Take(const std::string& address);
  int taken() const;

 private:
  void Give(const Slot& slot);

  const Limits limits_;
  mutable std::mutex mutex_;               // guards the members below
  int ordinary_ = 0;                       // slots taken within the limits
  int reserved_ = 0;                       // slots taken beyond them
  std::map<std::string, int> by_address_;  // ordinary slots of each client address
};

// A budget of bytes that many requests share. It may be a part of a larger budget, whose bytes its
// shares use, too. Thread-safe. Must outlive its shares.
class ByteBudget final {
 public:
  // The part of the budget that one request holds. The destructor gives it back. Not thread-safe.
  class Share final {
   public:
    Share() = default;
    explicit Share(ByteBudget& budget) : budget_(&budget) {}
    Share(Share&& other) noexcept;
    Share& operator=(Share&& other) noexcept;
    ~Share() { Release(); }

    // Grows the share to `bytes`, which must not be less than its size. False, without a change,
    // when the budget has too few bytes left.
    bool GrowTo(size_t bytes);
    void Release();

   private:
    ByteBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  // `whole`: the larger budget, which outlives this one; null: none.
  explicit ByteBudget(size_t limit, ByteBudget* whole = nullptr) : limit_(limit), whole_(whole) {}

  size_t used() const;

 private:
  bool Take(size_t bytes);
  void Give(size_t bytes);

  const size_t limit_;
  ByteBudget* const whole_;
  mutable std::mutex mutex_;
  size_t used_ = 0;  // guarded by mutex_
};

// The bytes of one answer that wait to be sent, which count in a sum over all answers, too. The
// destructor takes those that were never sent off the sum. Thread-safe. The sum must outlive it.
class UnsentBytes final {
 public:
  explicit UnsentBytes(std::atomic<size_t>& sum) : sum_(sum) {}
  UnsentBytes(const UnsentBytes&) = delete;
  UnsentBytes& operator=(const UnsentBytes&) = delete;
  ~UnsentBytes() { sum_ -= bytes_; }

  size_t count() const { return bytes_; }
  void Add(size_t bytes) {
    bytes_ += bytes;
    sum_ += bytes;
  }
  void Remove(size_t bytes) {
    bytes_ -= bytes;
    sum_ -= bytes;
  }

 private:
  std::atomic<size_t>& sum_;
  std::atomic<size_t> bytes_{0};
};

}  // namespace baton
