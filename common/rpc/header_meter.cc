#include "common/rpc/header_meter.h"

#include <nghttp2/nghttp2.h>

#include <utility>

#include "common/base/check.h"

namespace baton {
namespace {

nghttp2_hd_inflater* NewInflater() {
  nghttp2_hd_inflater* inflater = nullptr;
  BATON_CHECK(nghttp2_hd_inflate_new(&inflater) == 0, "no memory for HTTP/2");
  return inflater;
}

}  // namespace

void HeaderMeter::Free::operator()(nghttp2_hd_inflater* inflater) const {
  nghttp2_hd_inflate_del(inflater);
}

HeaderMeter::HeaderMeter() : inflater_(NewInflater()) {}

bool HeaderMeter::Take(std::string_view bytes, bool last) {
  if (std::exchange(complete_, false)) header_bytes_ = 0;
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  while (true) {
    nghttp2_nv line = {};
    int flags = 0;
    const ssize_t used =
        nghttp2_hd_inflate_hd2(inflater_.get(), &line, &flags, at, left, last ? 1 : 0);
    if (used < 0) return false;
    at += used;
    left -= static_cast<size_t>(used);
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
      header_bytes_ += line.namelen + line.valuelen + kLineBytes;
      if (header_bytes_ > kMaxHeaderBytes) return false;
      continue;
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
      nghttp2_hd_inflate_end_headers(inflater_.get());
      complete_ = true;
      return true;
    }
    if (left == 0) return !last;
  }
}

}  // namespace baton
