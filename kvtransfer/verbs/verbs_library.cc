#include "kvtransfer/verbs/verbs_library.h"

#include <dlfcn.h>

namespace baton {
namespace {

constexpr const char* kFile = "libibverbs.so.1";

// Finds functions in the library, and remembers the first one that is missing.
class Symbols final {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class Function>
  void Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* const library_;
  const char* missing_ = nullptr;
};

StatusOr<VerbsLibrary> Open() {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return MakeStatus(StatusCode::kUnavailable,
                      "libibverbs does not load: {}; install the packages libibverbs1 and "
                      "ibverbs-providers (Debian, Ubuntu)",
                      reason == nullptr ? "unknown reason" : reason);
  }
  VerbsLibrary verbs;
  Symbols symbols(library);
  symbols.Find("ibv_get_device_list", verbs.get_device_list);
  symbols.Find("ibv_free_device_list", verbs.free_device_list);
  symbols.Find("ibv_get_device_name", verbs.get_device_name);
  symbols.Find("ibv_open_device", verbs.open_device);
  symbols.Find("ibv_close_device", verbs.close_device);
  symbols.Find("ibv_query_device", verbs.query_device);
  symbols.Find("ibv_query_port", verbs.query_port);
  symbols.Find("_ibv_query_gid_ex", verbs.query_gid_ex);
  symbols.Find("ibv_get_async_event", verbs.get_async_event);
  symbols.Find("ibv_ack_async_event", verbs.ack_async_event);
  symbols.Find("ibv_event_type_str", verbs.event_type_str);
  symbols.Find("ibv_alloc_pd", verbs.alloc_pd);
  symbols.Find("ibv_dealloc_pd", verbs.dealloc_pd);
  symbols.Find("ibv_reg_mr_iova2", verbs.reg_mr_iova2);
  symbols.Find("ibv_reg_dmabuf_mr", verbs.reg_dmabuf_mr);
  symbols.Find("ibv_dereg_mr", verbs.dereg_mr);
  symbols.Find("ibv_create_comp_channel", verbs.create_comp_channel);
  symbols.Find("ibv_destroy_comp_channel", verbs.destroy_comp_channel);
  symbols.Find("ibv_create_cq", verbs.create_cq);
  symbols.Find("ibv_destroy_cq", verbs.destroy_cq);
  symbols.Find("ibv_get_cq_event", verbs.get_cq_event);
  symbols.Find("ibv_ack_cq_events", verbs.ack_cq_events);
  symbols.Find("ibv_create_qp", verbs.create_qp);
  symbols.Find("ibv_modify_qp", verbs.modify_qp);
  symbols.Find("ibv_destroy_qp", verbs.destroy_qp);
  symbols.Find("ibv_wc_status_str", verbs.wc_status_str);
  if (symbols.missing() != nullptr) {
    return MakeStatus(StatusCode::kUnavailable,
                      "{} has no {}; rdma-core 34 or newer is needed",
                      kFile,
                      symbols.missing());
  }
  return verbs;
}

}  // namespace

StatusOr<const VerbsLibrary*> VerbsLibrary::Load() {
  static const StatusOr<VerbsLibrary> library = Open();
  BATON_RETURN_IF_ERROR(library.status());
  return &*library;
}

}  // namespace baton
