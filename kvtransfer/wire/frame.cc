#include "kvtransfer/wire/frame.h"

#include <algorithm>

namespace baton {
namespace {

constexpr uint32_t kProofMagic = 0x31534842;  // kPeerProofMagic

// Of runs or of ranges.
template <class Part>
Status CheckParts(const WriteHeader& header, std::span<const Part> parts) {
  uint64_t left = header.payload_bytes;
  for (const Part& part : parts) {
    if (part.bytes == 0 || part.bytes > left) {
      return InvalidArgument("write {}: a run of {} bytes where {} are left of the payload's {}",
                             header.op,
                             part.bytes,
                             left,
                             header.payload_bytes);
    }
    left -= part.bytes;
  }
  if (left == 0) return OkStatus();
  return InvalidArgument("write {}: the runs are {} bytes short of the payload's {}",
                         header.op,
                         left,
                         header.payload_bytes);
}

// Whether `part` lies inside `range`. No sum can overflow.
bool IsInside(const ByteRange& part, const ByteRange& range) {
  return part.offset >= range.offset && part.offset - range.offset <= range.bytes &&
         part.bytes <= range.bytes - (part.offset - range.offset);
}

}  // namespace

Status CheckPreface(const Preface& preface, PayloadKind expected) {
  if (preface.magic == kProofMagic) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the peer proves the cluster's secret, but this worker has none; set its "
                      "security.cluster_secret_file");
  }
  if (preface.magic != kPrefaceMagic) {
    return InvalidArgument("the connection opens with {:#010x}, not with KV data's {:#010x}",
                           preface.magic,
                           kPrefaceMagic);
  }
  if (preface.version != kFrameVersion) {
    return InvalidArgument(
        "KV data version is {}; this side has {}", preface.version, kFrameVersion);
  }
  if (preface.kind != expected) {
    return InvalidArgument("payload kind is {}; {} is served here",
                           static_cast<uint16_t>(preface.kind),
                           static_cast<uint16_t>(expected));
  }
  if ((preface.flags & ~kAuthenticated) != 0) {
    return InvalidArgument(
        "the preface has flags {:#x}; this side knows {:#x}", preface.flags, kAuthenticated);
  }
  return OkStatus();
}

Status CheckTag(const MacTag& received, const MacTag& computed, std::string_view message) {
  if (SameTag(received, computed)) return OkStatus();
  return MakeStatus(StatusCode::kUnauthenticated,
                    "{} has a wrong tag: bytes were changed, left out, repeated or moved between "
                    "the two workers",
                    message);
}

Status CheckHeader(const WriteHeader& header) {
  if (header.magic != kWriteMagic) {
    return InvalidArgument("a frame begins with {:#010x}, not {:#010x}", header.magic, kWriteMagic);
  }
  if (header.run_count > kMaxOpRuns || header.payload_bytes > kMaxOpBytes) {
    return InvalidArgument("write {} has {} runs and {} bytes; at most {} and {} are allowed",
                           header.op,
                           header.run_count,
                           header.payload_bytes,
                           kMaxOpRuns,
                           kMaxOpBytes);
  }
  if (header.granule > 0 && header.payload_bytes % header.granule != 0) {
    return InvalidArgument("write {} has {} bytes, which is not a multiple of its granule {}",
                           header.op,
                           header.payload_bytes,
                           header.granule);
  }
  // Limits the memory for checksums if the peer states a hostile granule.
  if (header.granule > 0 && header.payload_bytes / header.granule > kMaxOpRuns) {
    return InvalidArgument("write {} has {} granules; at most {} are allowed",
                           header.op,
                           header.payload_bytes / header.granule,
                           kMaxOpRuns);
  }
  return OkStatus();
}

Status CheckRuns(const WriteHeader& header, std::span<const WriteRun> runs) {
  return CheckParts(header, runs);
}

Status CheckRanges(const WriteHeader& header, std::span<const ByteRange> ranges) {
  return CheckParts(header, ranges);
}

Status CheckDestinations(std::span<const ByteRange> written, std::span<const ByteRange> allowed) {
  ByteRange last;  // the allowed range of the part before: the next part often lies there, too
  for (const ByteRange& part : written) {
    if (IsInside(part, last)) continue;
    const auto behind = std::ranges::upper_bound(allowed, part.offset, {}, &ByteRange::offset);
    if (behind != allowed.begin()) last = *std::prev(behind);
    if (!IsInside(part, last)) {
      return MakeStatus(StatusCode::kPermissionDenied,
                        "a run writes {}+{}, outside its window",
                        part.offset,
                        part.bytes);
    }
  }
  return OkStatus();
}

StatusOr<WriteHeader> HeaderOf(const WriteOp& op, uint64_t id, uint64_t source_bytes) {
  if (op.runs.size() > kMaxOpRuns)
    return InvalidArgument("a write of {} runs, which is over the limit", op.runs.size());
  WriteHeader header;
  header.run_count = static_cast<uint32_t>(op.runs.size());
  header.op = id;
  header.window_key = op.window_key;
  header.tag = op.tag;
  header.granule = op.granule;
  for (const WriteRun& run : op.runs) {
    if (run.bytes > kMaxOpBytes - header.payload_bytes) {
      return InvalidArgument("a write of over {} bytes", kMaxOpBytes);
    }
    header.payload_bytes += run.bytes;
  }
  BATON_RETURN_IF_ERROR(CheckHeader(header));
  BATON_RETURN_IF_ERROR(CheckRuns(header, op.runs));
  BATON_RETURN_IF_ERROR(CheckSources(op.runs, source_bytes));
  return header;
}

Status CheckSources(std::span<const WriteRun> runs, uint64_t size) {
  for (const WriteRun& run : runs) {
    if (run.bytes > size || run.source > size - run.bytes) {
      return InvalidArgument(
          "a run reads {}+{}, outside a memory of {} bytes", run.source, run.bytes, size);
    }
  }
  return OkStatus();
}

}  // namespace baton
