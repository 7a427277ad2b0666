#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "kvtransfer/verbs/verbs_library.h"

namespace baton {

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
    ibv_sge source;  // length 0 if the request has none
  };

  FakeVerbs() {
    self_ = this;
    context_.ops.post_send = PostSend;
    context_.async_fd = -1;
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

  std::vector<Device> devices;
  std::vector<Write> writes;
  int registration_error = 0;        // of the next registrations
  int posts_left = 1000000;          // posts that succeed before the others fail
  std::vector<ibv_qp_state> states;  // that the queue pair took

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
    errno = self_->registration_error;
    return self_->registration_error == 0 ? &self_->memory_ : nullptr;
  }
  static ibv_comp_channel* CreateChannel(ibv_context*) {
    self_->channel_.fd = 0;
    return &self_->channel_;
  }
  static ibv_cq* CreateQueue(ibv_context*, int, void*, ibv_comp_channel*, int) {
    return &self_->queue_;
  }
  static ibv_qp* CreatePair(ibv_pd*, ibv_qp_init_attr*) { return &self_->queue_pair_; }
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
      self_->writes.push_back({*request, request->num_sge == 0 ? ibv_sge{} : request->sg_list[0]});
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
    verbs.dereg_mr = Destroy<ibv_mr>;
    verbs.create_comp_channel = CreateChannel;
    verbs.destroy_comp_channel = Destroy<ibv_comp_channel>;
    verbs.create_cq = CreateQueue;
    verbs.destroy_cq = Destroy<ibv_cq>;
    verbs.create_qp = CreatePair;
    verbs.modify_qp = ModifyPair;
    verbs.destroy_qp = Destroy<ibv_qp>;
    return verbs;
  }

  static inline FakeVerbs* self_ = nullptr;
  const VerbsLibrary library_ = MakeLibrary();
  std::vector<ibv_device*> listed_;
  std::vector<ibv_device> handles_;
  size_t opened_ = 0;
  ibv_context context_{};
  ibv_pd domain_{};
  ibv_mr memory_{};
  ibv_comp_channel channel_{};
  ibv_cq queue_{};
  ibv_qp queue_pair_{};
};

}  // namespace baton
