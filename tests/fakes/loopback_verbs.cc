#include "tests/fakes/loopback_verbs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace baton {
namespace {

constexpr size_t kDevices = 2;
constexpr std::array<const char*, kDevices> kNames = {"loop0", "loop1"};

// Has a mutex of its own, so that an end that looks for completions does not wait for the copies of
// the other end.
struct Queue : ibv_cq {
  std::mutex mutex;
  std::deque<ibv_wc> completions;
  bool is_armed = false;
};

// A write or message that waits for its queue pair's turn.
struct Waiting {
  ibv_send_wr request{};
  std::vector<ibv_sge> sources;
};

// A receive request; without memory, `memory` is zero.
struct Receiving {
  uint64_t id = 0;
  ibv_sge memory{};
};

struct Pair : ibv_qp {
  ibv_qp_state at = IBV_QPS_RESET;
  uint32_t peer = 0;
  std::deque<Receiving> receives;
  std::deque<Waiting> sends;
};

struct Memory : ibv_mr {
  uintptr_t begin = 0;
};

// What the devices share.
struct World {
  std::mutex mutex;
  std::map<uint32_t, Pair*> pairs;       // by number
  std::map<uint32_t, Memory*> memories;  // by rkey
  uint32_t next_pair = 100;
  uint32_t next_key = 7;
  std::atomic<int64_t> nanos = 0;  // LoopbackDeviceSeconds
};

World& TheWorld() {
  static World world;
  return world;
}

void Complete(Queue& queue, const ibv_wc& completion) {
  const std::lock_guard lock(queue.mutex);
  queue.completions.push_back(completion);
  if (!queue.is_armed) return;
  queue.is_armed = false;
  const uint64_t one = 1;
  (void)!::write(queue.channel->fd, &one, sizeof(one));
}

void CompleteSend(Pair& pair, const ibv_send_wr& request, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && (request.send_flags & IBV_SEND_SIGNALED) == 0) return;
  ibv_wc completion{};
  completion.wr_id = request.wr_id;
  completion.status = status;
  completion.opcode = request.opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
  completion.qp_num = pair.qp_num;
  Complete(*static_cast<Queue*>(pair.send_cq), completion);
}

bool IsRegistered(const World& world, const ibv_send_wr& request, uint64_t bytes) {
  const auto found = world.memories.find(request.wr.rdma.rkey);
  if (found == world.memories.end()) return false;
  const uint64_t address = request.wr.rdma.remote_addr;
  const Memory& memory = *found->second;
  return address >= memory.begin && address - memory.begin <= memory.length &&
         bytes <= memory.length - (address - memory.begin);
}

void Break(Pair& pair, ibv_wc_status first) {
  pair.at = IBV_QPS_ERR;
  for (; !pair.sends.empty(); pair.sends.pop_front()) {
    CompleteSend(pair, pair.sends.front().request, first);
    first = IBV_WC_WR_FLUSH_ERR;
  }
}

// libibverbs has addresses as numbers.
std::byte* PointerTo(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Carries out a write or a message. IBV_WC_RNR_RETRY_EXC_ERR: it waits for a receive request. Other
// errors break the pair.
ibv_wc_status CarryOut(World& world,
                       Pair& pair,
                       const ibv_send_wr& request,
                       std::span<const ibv_sge> sources) {
  uint64_t bytes = 0;
  for (const ibv_sge& source : sources) bytes += source.length;
  const auto found = world.pairs.find(pair.peer);
  if (found == world.pairs.end() || found->second->at < IBV_QPS_RTR ||
      found->second->at == IBV_QPS_ERR) {
    return IBV_WC_RETRY_EXC_ERR;
  }
  Pair& peer = *found->second;
  const bool is_message = request.opcode == IBV_WR_SEND;
  if (!is_message && !IsRegistered(world, request, bytes)) return IBV_WC_REM_ACCESS_ERR;
  const bool is_received = is_message || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (is_received && peer.receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
  if (is_message && bytes > peer.receives.front().memory.length) return IBV_WC_REM_INV_REQ_ERR;
  auto* to =
      PointerTo(is_message ? peer.receives.front().memory.addr : request.wr.rdma.remote_addr);
  for (const ibv_sge& source : sources) {
    std::memcpy(to, PointerTo(source.addr), source.length);
    to += source.length;
  }
  if (is_received) {
    ibv_wc arrival{};
    arrival.wr_id = peer.receives.front().id;
    peer.receives.pop_front();
    arrival.opcode = is_message ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
    arrival.imm_data = request.imm_data;
    arrival.qp_num = peer.qp_num;
    arrival.byte_len = static_cast<uint32_t>(bytes);
    Complete(*static_cast<Queue*>(peer.recv_cq), arrival);
  }
  CompleteSend(pair, request, IBV_WC_SUCCESS);
  return IBV_WC_SUCCESS;
}

// Carries out the pair's writes and messages, in order, until one lacks a receive request.
void Work(World& world, Pair& pair) {
  while (!pair.sends.empty() && pair.at == IBV_QPS_RTS) {
    const auto& [request, sources] = pair.sends.front();
    const ibv_wc_status status = CarryOut(world, pair, request, sources);
    if (status == IBV_WC_RNR_RETRY_EXC_ERR) return;
    if (status != IBV_WC_SUCCESS) return Break(pair, status);
    pair.sends.pop_front();
  }
}

int64_t ThreadNanos() {
  timespec now{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int PostSend(ibv_qp* to, ibv_send_wr* request, ibv_send_wr** bad) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  const int64_t begin = ThreadNanos();
  Pair& pair = *static_cast<Pair*>(to);
  if (pair.at != IBV_QPS_RTS) {
    *bad = request;
    return EINVAL;
  }
  for (; request != nullptr; request = request->next) {
    const std::span sources(request->sg_list, static_cast<size_t>(request->num_sge));
    // Only what must wait is kept.
    const bool is_next = pair.sends.empty() && pair.at == IBV_QPS_RTS;
    if (is_next && CarryOut(world, pair, *request, sources) == IBV_WC_SUCCESS) continue;
    pair.sends.push_back({*request, {sources.begin(), sources.end()}});
  }
  Work(world, pair);
  world.nanos += ThreadNanos() - begin;
  return 0;
}

int PostReceive(ibv_qp* to, ibv_recv_wr* request, ibv_recv_wr**) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  Pair& pair = *static_cast<Pair*>(to);
  for (; request != nullptr; request = request->next) {
    pair.receives.push_back(
        {request->wr_id, request->num_sge == 0 ? ibv_sge{} : *request->sg_list});
  }
  if (const auto peer = world.pairs.find(pair.peer); peer != world.pairs.end()) {
    Work(world, *peer->second);
  }
  return 0;
}

int PollQueue(ibv_cq* from, int most, ibv_wc* out) {
  Queue& queue = *static_cast<Queue*>(from);
  const std::lock_guard lock(queue.mutex);
  int count = 0;
  for (; count < most && !queue.completions.empty(); queue.completions.pop_front()) {
    out[count++] = queue.completions.front();
  }
  return count;
}

int Arm(ibv_cq* of, int) {
  Queue& queue = *static_cast<Queue*>(of);
  const std::lock_guard lock(queue.mutex);
  queue.is_armed = true;
  return 0;
}

std::array<ibv_device, kDevices>& Devices() {
  static std::array<ibv_device, kDevices> devices{};
  return devices;
}

size_t IndexOf(const ibv_device* device) {
  return static_cast<size_t>(device - Devices().data());
}

ibv_device** List(int* count) {
  *count = kDevices;
  auto* const list = new ibv_device*[kDevices];
  for (size_t i = 0; i < kDevices; ++i) list[i] = &Devices()[i];
  return list;
}

ibv_context* OpenDevice(ibv_device* device) {
  auto* const context = new ibv_context{};
  context->device = device;
  context->async_fd = -1;
  context->ops.post_send = PostSend;
  context->ops.post_recv = PostReceive;
  context->ops.poll_cq = PollQueue;
  context->ops.req_notify_cq = Arm;
  return context;
}

int QueryPort(ibv_context*, uint8_t, ibv_port_attr* attributes) {
  attributes->state = IBV_PORT_ACTIVE;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->gid_tbl_len = 1;
  return 0;
}

int QueryGid(ibv_context* context, uint32_t, uint32_t, ibv_gid_entry* entry, uint32_t, size_t) {
  // ::ffff:10.0.0.1 and ::ffff:10.0.0.2
  const std::array<uint8_t, 6> address = {
      0xff, 0xff, 10, 0, 0, static_cast<uint8_t>(1 + IndexOf(context->device))};
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  std::memset(&entry->gid, 0, sizeof(entry->gid));
  std::memcpy(entry->gid.raw + 10, address.data(), address.size());
  return 0;
}

ibv_mr* Register(ibv_pd*, void* address, size_t bytes, uint64_t, unsigned) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  auto* const memory = new Memory;
  memory->begin = reinterpret_cast<uintptr_t>(address);
  memory->length = bytes;
  memory->lkey = memory->rkey = world.next_key++;
  world.memories[memory->rkey] = memory;
  return memory;
}

int Deregister(ibv_mr* of) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  world.memories.erase(of->rkey);
  delete static_cast<Memory*>(of);
  return 0;
}

ibv_comp_channel* CreateChannel(ibv_context* context) {
  auto* const channel = new ibv_comp_channel{};
  channel->context = context;
  channel->fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return channel;
}

int DestroyChannel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  delete channel;
  return 0;
}

ibv_cq* CreateQueue(ibv_context* context, int, void*, ibv_comp_channel* channel, int) {
  auto* const queue = new Queue;
  queue->context = context;
  queue->channel = channel;
  return queue;
}

int TakeEvent(ibv_comp_channel* channel, ibv_cq**, void**) {
  uint64_t count = 0;
  return ::read(channel->fd, &count, sizeof(count)) == sizeof(count) ? 0 : -1;
}

ibv_qp* CreatePair(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  auto* const pair = new Pair;
  pair->context = domain->context;
  pair->send_cq = attributes->send_cq;
  pair->recv_cq = attributes->recv_cq;
  pair->qp_num = world.next_pair++;
  world.pairs[pair->qp_num] = pair;
  return pair;
}

int ModifyPair(ibv_qp* of, ibv_qp_attr* attributes, int mask) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  Pair& pair = *static_cast<Pair*>(of);
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = attributes->dest_qp_num;
  pair.at = attributes->qp_state;
  if (pair.at == IBV_QPS_ERR) Break(pair, IBV_WC_WR_FLUSH_ERR);
  return 0;
}

int DestroyPair(ibv_qp* of) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  auto* const pair = static_cast<Pair*>(of);
  world.pairs.erase(pair->qp_num);
  // Its peer's writes that wait for a receive request will not get one.
  if (const auto peer = world.pairs.find(pair->peer); peer != world.pairs.end()) {
    Work(world, *peer->second);
  }
  delete pair;
  return 0;
}

template <class Base, class Derived = Base>
int Delete(Base* object) {
  delete static_cast<Derived*>(object);
  return 0;
}

VerbsLibrary MakeLibrary() {
  VerbsLibrary verbs;
  verbs.get_device_list = List;
  verbs.free_device_list = [](ibv_device** list) { delete[] list; };
  verbs.get_device_name = [](ibv_device* device) { return kNames[IndexOf(device)]; };
  verbs.open_device = OpenDevice;
  verbs.close_device = Delete<ibv_context>;
  verbs.query_device = [](ibv_context*, ibv_device_attr* attributes) {
    attributes->phys_port_cnt = 1;
    attributes->max_qp_wr = 1024;
    attributes->max_sge = 4;
    return 0;
  };
  verbs.query_port = QueryPort;
  verbs.query_gid_ex = QueryGid;
  verbs.get_async_event = [](ibv_context*, ibv_async_event*) { return -1; };
  verbs.alloc_pd = [](ibv_context* context) { return new ibv_pd{context, 0}; };
  verbs.dealloc_pd = Delete<ibv_pd>;
  verbs.reg_mr_iova2 = Register;
  verbs.dereg_mr = Deregister;
  verbs.create_comp_channel = CreateChannel;
  verbs.destroy_comp_channel = DestroyChannel;
  verbs.create_cq = CreateQueue;
  verbs.destroy_cq = Delete<ibv_cq, Queue>;
  verbs.get_cq_event = TakeEvent;
  verbs.ack_cq_events = [](ibv_cq*, unsigned) {};
  verbs.create_qp = CreatePair;
  verbs.modify_qp = ModifyPair;
  verbs.destroy_qp = DestroyPair;
  verbs.wc_status_str = [](ibv_wc_status status) {
    return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "the peer does not answer";
  };
  return verbs;
}

}  // namespace

double LoopbackDeviceSeconds() {
  return static_cast<double>(TheWorld().nanos) / 1e9;
}

LoopbackObjects CountLoopbackObjects() {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  return {world.pairs.size(), world.memories.size()};
}

const VerbsLibrary& LoopbackVerbs() {
  static const VerbsLibrary library = MakeLibrary();
  return library;
}

}  // namespace baton
