#pragma once

#include <infiniband/verbs.h>

#include "common/base/status.h"

namespace baton {

// The functions of libibverbs, which is opened at run time, so that the programs do not need it.
// The names are those of libibverbs without the prefix. Functions that verbs.h defines inline
// (ibv_post_send, ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq) are called directly. Immutable;
// thread-safe.
struct VerbsLibrary {
  ibv_device** (*get_device_list)(int* count) = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_get_device_name) get_device_name = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attributes) = nullptr;
  decltype(&_ibv_query_gid_ex) query_gid_ex = nullptr;
  decltype(&ibv_get_async_event) get_async_event = nullptr;
  decltype(&ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&ibv_event_type_str) event_type_str = nullptr;
  decltype(&ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;
  decltype(&ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;
  decltype(&ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&ibv_create_cq) create_cq = nullptr;
  decltype(&ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&ibv_create_qp) create_qp = nullptr;
  decltype(&ibv_modify_qp) modify_qp = nullptr;
  decltype(&ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&ibv_wc_status_str) wc_status_str = nullptr;

  // The library of this process, opened by the first call. Unavailable when it is missing or too
  // old; the message names the package.
  static StatusOr<const VerbsLibrary*> Load();
};

}  // namespace baton
