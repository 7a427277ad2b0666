#include "tests/unit/http/http2_client.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

namespace baton {
namespace {

nghttp2_nv Line(const std::string& name, const std::string& value) {
  const auto bytes = [](const std::string& text) {
    return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

struct ClientCallbacks {
  static Http2Client& Client(void* self) { return *static_cast<Http2Client*>(self); }

  static int OnHeader(nghttp2_session*,
                      const nghttp2_frame* frame,
                      const uint8_t* name,
                      size_t name_size,
                      const uint8_t* value,
                      size_t value_size,
                      uint8_t,
                      void* self) {
    Http2Client::Answer& answer = Client(self).answers_[frame->hd.stream_id];
    const std::string key(reinterpret_cast<const char*>(name), name_size);
    const std::string text(reinterpret_cast<const char*>(value), value_size);
    if (key != ":status") {
      answer.headers[key] = text;
    } else if (text[0] == '1') {
      answer.interim.push_back(std::stoi(text));
    } else {
      answer.status = std::stoi(text);
    }
    return 0;
  }

  static int OnData(
      nghttp2_session*, uint8_t, int32_t stream, const uint8_t* bytes, size_t size, void* self) {
    Client(self).answers_[stream].body.append(reinterpret_cast<const char*>(bytes), size);
    return 0;
  }

  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* self) {
    if (frame->hd.type == NGHTTP2_GOAWAY) Client(self).goaway_ = frame->goaway.error_code;
    const bool can_end = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (can_end && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      Client(self).answers_[frame->hd.stream_id].ended = true;
    }
    return 0;
  }

  static int OnClose(nghttp2_session*, int32_t stream, uint32_t code, void* self) {
    Http2Client::Answer& answer = Client(self).answers_[stream];
    if (code != NGHTTP2_NO_ERROR) answer.reset = code;
    answer.ended = true;
    return 0;
  }

  static ssize_t ReadBody(nghttp2_session*,
                          int32_t stream,
                          uint8_t* buffer,
                          size_t size,
                          uint32_t* flags,
                          nghttp2_data_source*,
                          void* self) {
    Http2Client::Upload& upload = Client(self).uploads_[stream];
    const size_t taken = std::min(size, upload.rest.size());
    upload.rest.copy(reinterpret_cast<char*>(buffer), taken);
    upload.rest.erase(0, taken);
    if (upload.rest.empty() && upload.ends) *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (taken == 0 && !upload.ends) return NGHTTP2_ERR_DEFERRED;
    return static_cast<ssize_t>(taken);
  }
};

void Http2Client::FreeSession::operator()(nghttp2_session* session) const {
  nghttp2_session_del(session);
}

Http2Client::Http2Client(const std::string& address) : Http2Client(address, Options()) {}

Http2Client::Http2Client(const std::string& address, const Options& options)
    : connection_(address) {
  nghttp2_session_callbacks* functions = nullptr;
  nghttp2_option* choices = nullptr;
  nghttp2_session* session = nullptr;
  nghttp2_session_callbacks_new(&functions);
  nghttp2_option_new(&choices);
  nghttp2_option_set_no_auto_window_update(choices, options.allows_more ? 0 : 1);
  nghttp2_session_callbacks_set_on_header_callback(functions, &ClientCallbacks::OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(functions, &ClientCallbacks::OnData);
  nghttp2_session_callbacks_set_on_frame_recv_callback(functions, &ClientCallbacks::OnFrame);
  nghttp2_session_callbacks_set_on_stream_close_callback(functions, &ClientCallbacks::OnClose);
  nghttp2_session_client_new2(&session, functions, this, choices);
  nghttp2_option_del(choices);
  nghttp2_session_callbacks_del(functions);
  session_.reset(session);
  const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options.window};
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &window, 1);
  SendWaiting();
}

Http2Client::~Http2Client() = default;

int32_t Http2Client::Send(const Request& request) {
  Headers lines = {{":method", request.method},
                   {":scheme", "http"},
                   {":authority", "test"},
                   {":path", request.path}};
  lines.insert(lines.end(), request.headers.begin(), request.headers.end());
  std::vector<nghttp2_nv> views;
  for (const auto& [name, value] : lines) views.push_back(Line(name, value));
  const nghttp2_data_provider body = {{.ptr = nullptr}, &ClientCallbacks::ReadBody};
  const bool has_body = !request.body.empty() || !request.ends;
  const int32_t stream = nghttp2_submit_request(
      session_.get(), nullptr, views.data(), views.size(), has_body ? &body : nullptr, nullptr);
  uploads_[stream] = {request.body, request.ends};
  SendWaiting();
  return stream;
}

void Http2Client::Reset(int32_t stream) {
  nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
  SendWaiting();
}

void Http2Client::Allow(int32_t stream, int32_t bytes) {
  nghttp2_submit_window_update(session_.get(), NGHTTP2_FLAG_NONE, stream, bytes);
  SendWaiting();
}

void Http2Client::SendWaiting() {
  while (true) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_.get(), &bytes);
    if (size <= 0) return;
    connection_.Send({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)});
  }
}

bool Http2Client::Await(const std::function<bool()>& done, Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  while (!done()) {
    pollfd waiting{connection_.fd(), POLLIN, 0};
    const double left = ToMillis(deadline - SteadyClock().Now());
    if (closed_ || ::poll(&waiting, 1, static_cast<int>(std::max(left, 0.0))) <= 0) return false;
    uint8_t buffer[16384];
    const ssize_t size = ::recv(connection_.fd(), buffer, sizeof(buffer), 0);
    if (size <= 0) {
      closed_ = true;
      continue;
    }
    nghttp2_session_mem_recv(session_.get(), buffer, static_cast<size_t>(size));
    SendWaiting();
  }
  return true;
}

const Http2Client::Answer& Http2Client::Await(int32_t stream) {
  Await([&] { return answers_[stream].ended; });
  return answers_[stream];
}

}  // namespace baton
