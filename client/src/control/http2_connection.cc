#include "client/src/control/http2_connection.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>

#include "client/src/control/unix_socket.h"
#include "client/src/session/fork.h"
#include "proto/version.h"

namespace arcomm::client {
namespace {

constexpr std::size_t kFrameHeaderBytes = 5;  // gRPC: one flag byte, four of length, big endian
// No reply of ours comes near it; a length beyond it is not a gRPC message.
constexpr std::size_t kLargestMessageBytes = std::size_t{64} << 20;
constexpr std::size_t kMostSentAtOnce = 16'384;
// Between calls a server has a few acknowledgements to say. One that says more is left.
constexpr int kMostIdleReads = 4;

std::string frame(std::string_view message) {
  std::string framed(kFrameHeaderBytes, '\0');
  for (std::size_t i = 0; i < 4; ++i) {
    framed[4 - i] = static_cast<char>((message.size() >> (8 * i)) & 0xff);
  }
  return framed.append(message);
}

// grpc-message is percent-encoded.
std::string percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr ==
            text.data() + i + 3) {
      out.push_back(static_cast<char>(value));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

int number_or(std::string_view text, int otherwise) {
  int value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

nghttp2_nv header(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

// What arrives for the call in progress.
struct Http2Connection::Stream {
  std::int32_t id = -1;
  std::string_view outgoing;
  const OnMessage* on_message = nullptr;
  std::string incoming;
  int http_status = 0;
  int grpc_status = -1;
  std::string grpc_message;
  int reason = 0;
  int rank = -1;
  bool closed = false;
  bool malformed = false;
  std::uint32_t reset_code = 0;

  void header(std::string_view name, std::string_view value) {
    if (name == ":status") http_status = number_or(value, 0);
    if (name == "grpc-status") grpc_status = number_or(value, -1);
    if (name == "grpc-message") grpc_message = percent_decoded(value);
    if (name == "arcomm-reason") reason = number_or(value, 0);
    if (name == "arcomm-rank") rank = number_or(value, -1);
  }
  void data(std::string_view bytes) {
    incoming.append(bytes);
    while (incoming.size() >= kFrameHeaderBytes && !malformed) {
      std::size_t length = 0;
      for (std::size_t i = 1; i < kFrameHeaderBytes; ++i) {
        length = (length << 8) | static_cast<unsigned char>(incoming[i]);
      }
      if (incoming[0] != 0 || length > kLargestMessageBytes) {
        malformed = true;  // compressed although we never offered it, or not gRPC at all
        return;
      }
      if (incoming.size() < kFrameHeaderBytes + length) return;
      (*on_message)(std::string_view(incoming).substr(kFrameHeaderBytes, length));
      incoming.erase(0, kFrameHeaderBytes + length);
    }
  }
};

Result<std::unique_ptr<Http2Connection>> Http2Connection::open(const std::string& path,
                                                               Deadline deadline) {
  Result<UniqueFd> fd = connect_unix(path, SOCK_STREAM, deadline);
  if (!fd) return std::move(fd).error();
  std::unique_ptr<Http2Connection> connection(new Http2Connection(std::move(*fd), path));
  ARC_RETURN_IF_ERROR(connection->start());
  return connection;
}

Http2Connection::Http2Connection(UniqueFd fd, std::string path)
    : fd_(std::move(fd)), path_(std::move(path)) {
  close_in_forked_child(fd_.get());
}

Http2Connection::~Http2Connection() {
  if (session_ != nullptr) nghttp2_session_del(session_);
  keep_in_forked_child(fd_.get());
}

Status Http2Connection::start() {
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no memory for a connection");
  }
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* what, const std::uint8_t* name,
                    std::size_t name_bytes, const std::uint8_t* value, std::size_t value_bytes,
                    std::uint8_t, void* self) {
        Stream* stream = static_cast<Http2Connection*>(self)->stream_;
        if (stream != nullptr && what->hd.stream_id == stream->id) {
          stream->header({reinterpret_cast<const char*>(name), name_bytes},
                         {reinterpret_cast<const char*>(value), value_bytes});
        }
        return 0;
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks, [](nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data,
                    std::size_t bytes, void* self) {
        Stream* stream = static_cast<Http2Connection*>(self)->stream_;
        if (stream != nullptr && id == stream->id) {
          stream->data({reinterpret_cast<const char*>(data), bytes});
        }
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks, [](nghttp2_session*, std::int32_t id, std::uint32_t code, void* self) {
        Stream* stream = static_cast<Http2Connection*>(self)->stream_;
        if (stream != nullptr && id == stream->id) {
          stream->closed = true;
          stream->reset_code = code;
        }
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
        if (frame->hd.type != NGHTTP2_GOAWAY ||
            frame->goaway.error_code != NGHTTP2_INADEQUATE_SECURITY) {
          return 0;
        }
        const nghttp2_goaway& bye = frame->goaway;
        static_cast<Http2Connection*>(self)->refusal_ = error(
            ErrorCode::PermissionDenied, Reason::Permission,
            std::string_view(reinterpret_cast<const char*>(bye.opaque_data), bye.opaque_data_len));
        return 0;
      });
  const int made = nghttp2_session_client_new(&session_, callbacks, this);
  nghttp2_session_callbacks_del(callbacks);
  if (made != 0 || nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no memory for a connection");
  }
  return {};
}

bool Http2Connection::usable() {
  if (broken_) return false;
  for (int reads = 0; reads < kMostIdleReads; ++reads) {
    bool would_block = false;
    if (!read_once(&would_block)) return false;
    if (would_block) return nghttp2_session_check_request_allowed(session_) != 0;
  }
  return false;
}

Error Http2Connection::lost(const char* what) const {
  if (refusal_) return *refusal_;
  return error(ErrorCode::Unavailable, Reason::DaemonLost, "the connection to the daemon at ",
               path_, " broke (", what, ")");
}

Error Http2Connection::late() const {
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the daemon at ", path_,
               " did not answer in time");
}

Error Http2Connection::lost_while_sending(int why) {
  bool would_block = false;
  while (read_once(&would_block).ok() && !would_block) {
  }
  return lost(std::strerror(why));
}

// What is due leaves together: each piece that arrives wakes the daemon twice.
Status Http2Connection::flush(Deadline deadline) {
  std::string due;
  for (;;) {
    const std::uint8_t* data = nullptr;
    const ssize_t bytes = nghttp2_session_mem_send(session_, &data);
    if (bytes < 0) return lost(nghttp2_strerror(static_cast<int>(bytes)));
    if (bytes > 0) due.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(bytes));
    if (bytes > 0 && due.size() < kMostSentAtOnce) continue;
    if (due.empty()) return {};
    ARC_RETURN_IF_ERROR(send(due, deadline));
    due.clear();
  }
}

Status Http2Connection::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_for_socket(fd_.get(), POLLOUT, deadline)) {
        return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the daemon at ", path_,
                     " does not read what it is sent");
      }
    } else if (n < 0 && errno != EINTR) {
      return lost_while_sending(errno);
    }
  }
  return {};
}

Status Http2Connection::read_once(bool* would_block) {
  std::uint8_t buffer[16384];
  const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n < 0 && errno == EINTR) return {};
  if (n < 0 && errno == EAGAIN) {
    *would_block = true;
    return {};
  }
  if (n <= 0) {
    broken_ = true;
    return lost(n == 0 ? "end of file" : std::strerror(errno));
  }
  const ssize_t taken = nghttp2_session_mem_recv(session_, buffer, static_cast<std::size_t>(n));
  if (taken < 0) {
    broken_ = true;
    return lost(nghttp2_strerror(static_cast<int>(taken)));
  }
  return {};
}

Status Http2Connection::receive(Deadline deadline) {
  bool would_block = false;
  ARC_RETURN_IF_ERROR(read_once(&would_block));
  if (!would_block) return {};
  if (!wait_for_socket(fd_.get(), POLLIN, deadline)) {
    return late();
  }
  return {};
}

Status Http2Connection::call(std::string_view method, std::string_view request, Deadline deadline,
                             const OnMessage& on_message) {
  const std::string framed = frame(request);
  Stream stream;
  stream.outgoing = framed;
  stream.on_message = &on_message;

  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
  // gRPC allows eight digits; a day is as good as more.
  const std::string timeout = std::to_string(std::min<long long>(left, 86'400'000)) + "m";
  const std::string agent = "libarclient/" + std::to_string(kVersionMajor) + "." +
                            std::to_string(kVersionMinor) + "." + std::to_string(kVersionPatch);
  const nghttp2_nv headers[] = {
      header(":method", "POST"),   header(":scheme", "http"),
      header(":path", method),     header(":authority", "localhost"),
      header("te", "trailers"),    header("content-type", "application/grpc"),
      header("user-agent", agent), header("grpc-timeout", timeout),
  };
  nghttp2_data_provider body{};
  body.source.ptr = &stream;
  body.read_callback = [](nghttp2_session*, std::int32_t, std::uint8_t* out, std::size_t room,
                          std::uint32_t* flags, nghttp2_data_source* source, void*) -> ssize_t {
    auto* from = static_cast<Stream*>(source->ptr);
    const std::size_t bytes = std::min(room, from->outgoing.size());
    std::memcpy(out, from->outgoing.data(), bytes);
    from->outgoing.remove_prefix(bytes);
    if (from->outgoing.empty()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(bytes);
  };
  stream.id =
      nghttp2_submit_request(session_, nullptr, headers, std::size(headers), &body, nullptr);
  if (stream.id < 0) return lost(nghttp2_strerror(stream.id));

  // A connection left in the middle of a call is not used again: closing it cancels the call.
  broken_ = true;
  is_answered_ = false;
  stream_ = &stream;
  Status status;
  while (status.ok() && !stream.closed && !stream.malformed) {
    status = flush(deadline);
    // After a breach of the protocol nghttp2 says goodbye and listens no more.
    if (status.ok() && !stream.closed && nghttp2_session_want_read(session_) == 0) {
      status = lost("what it sends is not HTTP/2 as gRPC has it");
    }
    if (status.ok() && !stream.closed) status = receive(deadline);
    // A server that always has something to say never lets receive() wait.
    if (status.ok() && !stream.closed && deadline.passed()) status = late();
  }
  stream_ = nullptr;
  is_answered_ = stream.grpc_status >= 0 || refusal_;
  // The last frames (acknowledgements) may still have to leave; they must not hold the caller up.
  if (status.ok()) {
    status = refusal_ && stream.grpc_status < 0 ? Status(*refusal_) : outcome(stream);
    broken_ = !stream.closed || stream.malformed || !flush(deadline).ok();
  } else if (stream.grpc_status >= 0) {
    status = outcome(stream);  // the answer was complete before the connection broke
  }
  return status;
}

Status Http2Connection::outcome(const Stream& stream) {
  if (stream.grpc_status == 0) return {};
  if (stream.grpc_status > 0) {
    Error failure{error_code_from(static_cast<unsigned>(stream.grpc_status)),
                  reason_from(static_cast<unsigned>(stream.reason)), stream.grpc_message,
                  stream.rank};
    if (failure.reason == Reason::None && failure.code == ErrorCode::DeadlineExceeded) {
      failure.reason = Reason::Timeout;
    }
    if (failure.reason == Reason::None && failure.code == ErrorCode::Unavailable) {
      failure.reason = Reason::DaemonLost;
    }
    return failure;
  }
  if (stream.malformed) {
    return error(ErrorCode::Internal, Reason::Corrupt, "the answer is not a gRPC message");
  }
  return error(ErrorCode::Unavailable, Reason::DaemonLost, "the call ended without a status (HTTP ",
               stream.http_status, ", stream code ", stream.reset_code, ")");
}

}  // namespace arcomm::client
