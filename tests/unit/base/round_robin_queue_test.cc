#include "common/base/round_robin_queue.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Queue = RoundRobinQueue<std::string, std::string>;

std::vector<std::string> PopAll(Queue& queue) {
  std::vector<std::string> all;
  while (!queue.empty()) all.push_back(queue.Pop());
  return all;
}

TEST(RoundRobinQueue, ClientsTakeTurns) {
  Queue queue;
  for (const char* item : {"a1", "a2", "a3"}) queue.Push("a", item);
  queue.Push("b", "b1");
  for (const char* item : {"c1", "c2"}) queue.Push("c", item);
  EXPECT_EQ(queue.size("a"), 3u);
  EXPECT_EQ(queue.size("d"), 0u);
  EXPECT_EQ(PopAll(queue), std::vector<std::string>({"a1", "b1", "c1", "a2", "c2", "a3"}));
}

// While an item is worked on, its client comes after all who push meanwhile.
TEST(RoundRobinQueue, AClientThatPushesMeanwhileComesNext) {
  Queue queue;
  queue.Push("a", "a1");
  queue.Push("a", "a2");
  EXPECT_EQ(queue.Pop(), "a1");
  queue.Push("b", "b1");
  EXPECT_EQ(PopAll(queue), std::vector<std::string>({"b1", "a2"}));
  queue.Push("a", "a3");
  queue.Push("c", "c1");
  EXPECT_EQ(PopAll(queue), std::vector<std::string>({"c1", "a3"}));
}

TEST(RoundRobinQueue, NoClientIsPassedByTwoThatComeAgainAndAgain) {
  Queue queue;
  queue.Push("a", "a1");
  queue.Push("b", "b1");
  queue.Push("c", "c1");
  std::vector<std::string> order;
  for (int i = 0; i < 6; ++i) {
    order.push_back(queue.Pop());
    const std::string client = order.back().substr(0, 1);
    queue.Push(client, client + "2");
  }
  EXPECT_EQ(order, std::vector<std::string>({"a1", "b1", "c1", "a2", "b2", "c2"}));
}

}  // namespace
}  // namespace baton
