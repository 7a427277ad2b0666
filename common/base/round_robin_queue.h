#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace baton {

// Items of several clients, which are taken out in turn: while several clients have items, one item
// of each is taken before a second item of any, however many a client has pushed. The client of
// the last item comes after all others, also after those that push while that item is worked on.
// Not thread-safe.
template <class Client, class Item>
class RoundRobinQueue final {
 public:
  bool empty() const { return items_.empty(); }
  // The items of one client.
  size_t size(const Client& client) const {
    const auto found = items_.find(client);
    return found == items_.end() ? 0 : found->second.size();
  }

  void Push(const Client& client, Item item) {
    std::deque<Item>& items = items_[client];
    if (items.empty() && client != last_) order_.push_back(client);
    items.push_back(std::move(item));
  }

  // The queue must not be empty.
  Item Pop() {
    if (last_.has_value() && items_.contains(*last_)) order_.push_back(*last_);
    last_ = std::move(order_.front());
    order_.pop_front();
    const auto found = items_.find(*last_);
    Item item = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) items_.erase(found);
    return item;
  }

 private:
  std::map<Client, std::deque<Item>> items_;  // no deque is empty
  std::deque<Client> order_;                  // the clients in items_ but last_, the next one first
  std::optional<Client> last_;                // of the item that was taken last
};

}  // namespace baton
