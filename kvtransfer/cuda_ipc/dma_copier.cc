#include "kvtransfer/cuda_ipc/dma_copier.h"

namespace baton {

Status DmaCopier::Connect(std::string_view access) {
  BATON_ASSIGN_OR_RETURN(peer_memory_, dma_.Import(access));
  return OkStatus();
}

StatusOr<uint32_t> DmaCopier::Copy(uint64_t id, std::span<const WriteRun> runs) {
  BATON_RETURN_IF_ERROR(queue_->Copy(id, source_, *peer_memory_, runs));
  return 0;
}

Status DmaCopier::Checksum(uint64_t id, std::span<const ByteRange> ranges, uint64_t granule) {
  return queue_->Checksum(id, source_, ranges, granule);
}

}  // namespace baton
