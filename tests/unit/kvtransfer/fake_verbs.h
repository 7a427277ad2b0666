#pragma once

#include <infiniband/verbs.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/sideband/stream_socket.h"
#include "kvtransfer/verbs/verbs_library.h"
#include "kvtransfer/verbs/verbs_socket.h"

namespace baton {

// A socket for a handshake whose frames do not matter.
inline std::unique_ptr<VerbsSocket> UnconnectedVerbsSocket() {
  return *VerbsSocket::Create(std::make_unique<StreamSocket>(*MakeEventFd()));
}

// A libibverbs with imaginary devices, for tests without RDMA hardware. Records what is posted. The
// functions of libibverbs have no context of their own, so there is one object at a time.
class FakeVerbs final {
 public:
  struct Device {
    std::string name;
    bool is_active = true;
    uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
    std::vector<ibv_gid_entry> gids;  // by index; with gid_type IB and a zero GID: an empty entry
  };
  struct Write {
    ibv_send_wr request;
    ibv_sge source;  // the first; length 0 if the request has none
    std::vector<ibv_sge> sources = {};
  };

  FakeVerbs() {
    self_ = this;
    context_.ops.post_send = PostSend;
    context_.ops.post_recv = PostReceive;
    context_.ops.poll_cq = Poll;
    context_.ops.req_notify_cq = [](ibv_cq*, int) { return 0; };
    context_.async_fd = -1;
    channel_.fd = event_.get();
    queue_.context = &context_;
    queue_pair_.context = &context_;
    queue_pair_.qp_num = 17;
  }
  ~FakeVerbs() { self_ = nullptr; }
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  static ibv_gid_entry GidEntry(ibv_gid_type type, std::vector<uint8_t> bytes) {
    ibv_gid_entry entry{};
    entry.gid_type = type;
    std::copy(bytes.begin(), bytes.end(), std::begin(entry.gid.raw));
    return entry;
  }

  const VerbsLibrary& library() const { return library_; }
  // A write of the peer comes in. It lands only while there is a queue pair.
  void WriteFromPeer(std::span<std::byte> to, std::byte value) const {
    if (has_pair_) std::fill(to.begin(), to.end(), value);
  }

  std::vector<Device> devices;
  std::vector<Write> writes;
  int registration_error = 0;           // of the next registrations by address
  int dma_buf_error = 0;                // of the next registrations by dma-buf
  std::vector<std::string> registered;  // how: "address" or "dma-buf"
  std::deque<ibv_wc> completions;       // that the next polls return
  int posts_left = 1000000;             // posts that succeed before the others fail
  int destroy_error = 0;                // of the next destructions of a queue pair
  std::vector<ibv_qp_state> states;     // that the queue pair took

 private:
  static ibv_device** List(int* count) {
    self_->listed_.assign(self_->devices.size(), nullptr);
    self_->handles_.resize(self_->devices.size());
    for (size_t i = 0; i < self_->devices.size(); ++i) self_->listed_[i] = &self_->handles_[i];
    *count = static_cast<int>(self_->devices.size());
    return self_->listed_.data();
  }
  static size_t IndexOf(const ibv_device* device) {
    return static_cast<size_t>(device - self_->handles_.data());
  }
  static const char* NameOf(ibv_device* device) {
    return self_->devices[IndexOf(device)].name.c_str();
  }
  static ibv_context* OpenDevice(ibv_device* device) {
    self_->opened_ = IndexOf(device);
    return &self_->context_;
  }
  static int QueryDevice(ibv_context*, ibv_device_attr* attributes) {
    attributes->phys_port_cnt = 1;
    attributes->max_qp_wr = 1024;
    return 0;
  }
  static int QueryPort(ibv_context*, uint8_t, ibv_port_attr* attributes) {
    const Device& device = self_->devices[self_->opened_];
    attributes->state = device.is_active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attributes->link_layer = device.link_layer;
    attributes->active_mtu = IBV_MTU_4096;
    attributes->gid_tbl_len = static_cast<int>(device.gids.size());
    return 0;
  }
  static int QueryGid(
      ibv_context*, uint32_t, uint32_t index, ibv_gid_entry* entry, uint32_t, size_t) {
    *entry = self_->devices[self_->opened_].gids[index];
    const ibv_gid empty{};
    return std::memcmp(&entry->gid, &empty, sizeof(empty)) == 0 ? ENODATA : 0;
  }
  static ibv_pd* AllocDomain(ibv_context*) { return &self_->domain_; }
  static ibv_mr* Register(ibv_pd*, void*, size_t, uint64_t, unsigned) {
    return Registered("address", self_->registration_error);
  }
  static ibv_mr* RegisterDmaBuf(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
    return Registered("dma-buf", self_->dma_buf_error);
  }
  static ibv_mr* Registered(const char* how, int error) {
    errno = error;
    if (error != 0) return nullptr;
    self_->registered.emplace_back(how);
    return &self_->memory_;
  }
  static int PostReceive(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return 0; }
  static int Poll(ibv_cq*, int most, ibv_wc* out) {
    int count = 0;
    for (; count < most && !self_->completions.empty(); self_->completions.pop_front()) {
      out[count++] = self_->completions.front();
    }
    return count;
  }
  static ibv_comp_channel* CreateChannel(ibv_context*) { return &self_->channel_; }
  static ibv_cq* CreateQueue(ibv_context*, int, void*, ibv_comp_channel*, int) {
    return &self_->queue_;
  }
  static ibv_qp* CreatePair(ibv_pd*, ibv_qp_init_attr*) {
    self_->has_pair_ = true;
    return &self_->queue_pair_;
  }
  static int DestroyPair(ibv_qp*) {
    self_->has_pair_ = self_->destroy_error != 0;
    return self_->destroy_error;
  }
  static int ModifyPair(ibv_qp*, ibv_qp_attr* attributes, int) {
    self_->states.push_back(attributes->qp_state);
    return 0;
  }
  static int PostSend(ibv_qp*, ibv_send_wr* request, ibv_send_wr** bad) {
    for (; request != nullptr; request = request->next) {
      if (self_->posts_left-- <= 0) {
        *bad = request;
        return ENOMEM;
      }
      self_->writes.push_back({*request,
                               request->num_sge == 0 ? ibv_sge{} : request->sg_list[0],
                               {request->sg_list, request->sg_list + request->num_sge}});
    }
    return 0;
  }
  template <class Object>
  static int Destroy(Object*) {
    return 0;
  }
  static VerbsLibrary MakeLibrary() {
    VerbsLibrary verbs;
    verbs.get_device_list = List;
    verbs.free_device_list = [](ibv_device**) {};
    verbs.get_device_name = NameOf;
    verbs.open_device = OpenDevice;
    verbs.close_device = Destroy<ibv_context>;
    verbs.query_device = QueryDevice;
    verbs.query_port = QueryPort;
    verbs.query_gid_ex = QueryGid;
    verbs.alloc_pd = AllocDomain;
    verbs.dealloc_pd = Destroy<ibv_pd>;
    verbs.reg_mr_iova2 = Register;
    verbs.reg_dmabuf_mr = RegisterDmaBuf;
    verbs.dereg_mr = Destroy<ibv_mr>;
    verbs.get_cq_event = [](ibv_comp_channel*, ibv_cq**, void**) { return -1; };
    verbs.create_comp_channel = CreateChannel;
    verbs.destroy_comp_channel = Destroy<ibv_comp_channel>;
    verbs.create_cq = CreateQueue;
    verbs.destroy_cq = Destroy<ibv_cq>;
    verbs.create_qp = CreatePair;
    verbs.modify_qp = ModifyPair;
    verbs.destroy_qp = DestroyPair;
    return verbs;
  }

  static inline FakeVerbs* self_ = nullptr;
  const VerbsLibrary library_ = MakeLibrary();
  const UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::vector<ibv_device*> listed_;
  std::vector<ibv_device> handles_;
  size_t opened_ = 0;
  bool has_pair_ = false;
  ibv_context context_{};
  ibv_pd domain_{};
  ibv_mr memory_{};
  ibv_comp_channel channel_{};
  ibv_cq queue_{};
  ibv_qp queue_pair_{};
};

}  // namespace baton
