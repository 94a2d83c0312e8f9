// The bytes of a peer's data connection, torn anywhere: frames with any header, numbers and
// checksums right and wrong. Nothing may be written outside of a place or region, nothing handed
// over unchecked.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "transport/net/sealing.h"
#include "transport/net/tcp/incoming.h"

namespace {

using namespace arcomm::net;  // NOLINT(google-build-using-namespace)
using arcomm::Result;
using arcomm::Status;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

class FuzzReceiver final : public Receiver {
 public:
  Result<std::byte*> place(const FrameHeader& header) override {
    if (++asked_ % 5 == 0) return nullptr;
    check(places_ == 0);
    ++places_;
    memory_ = std::vector<std::byte>(std::max<std::size_t>(header.length, 1));
    return memory_.data();
  }
  Status arrived(const FrameHeader& header, std::span<const std::byte> payload) override {
    check(places_-- == 1);
    check(payload.data() == memory_.data() && payload.size() == header.length);
    check(check_payload(header, payload).ok());
    return {};
  }
  void abandoned(const FrameHeader&) override { check(places_-- == 1); }
  bool is_even() const { return places_ == 0; }

 private:
  std::vector<std::byte> memory_;
  int places_ = 0;
  int asked_ = 0;
};

// The input as a stream: a byte that says what follows, then a header (whose number and checksums
// are made right, mostly) or bytes as they are.
std::vector<std::byte> stream_of(const std::uint8_t* data, std::size_t size, std::uint64_t number) {
  std::vector<std::byte> stream;
  while (size > 0) {
    const unsigned what = *data++;
    --size;
    FrameHeader header;
    std::size_t taken = std::min(size, what % 4 == 0 ? std::size_t{what} : sizeof header);
    if (what % 4 == 0 || taken < sizeof header) {
      stream.insert(stream.end(), reinterpret_cast<const std::byte*>(data),
                    reinterpret_cast<const std::byte*>(data) + taken);
    } else {
      std::memcpy(&header, data, sizeof header);
      header.magic = kFrameMagic;
      header.version = kWireVersion;
      header.flags = 0;
      header.length %= static_cast<std::uint32_t>(size - taken + 1);
      const auto payload = std::as_bytes(std::span(data + taken, header.length));
      if (what % 16 != 3) header.number = number;
      ++number;
      if (what % 16 != 1) seal(header, payload);
      const auto bytes = std::as_bytes(std::span(&header, 1));
      stream.insert(stream.end(), bytes.begin(), bytes.end());
      stream.insert(stream.end(), payload.begin(), payload.end());
      taken += payload.size();
    }
    data += taken;
    size -= taken;
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const unsigned tear = data[0];
  const bool is_welcomed = data[1] % 8 != 0;
  const auto stream = stream_of(data + 2, size - 2, is_welcomed ? 1 : 0);

  Regions regions;
  std::vector<std::byte> memory(64);
  std::array<SignalWord, 2> signals{};
  const RegionId region = regions.add(memory, signals, {7, 1}).value();
  FuzzReceiver receiver;
  {
    Incoming incoming(regions, is_welcomed ? std::nullopt : std::optional<Secret>(Secret{}));
    std::size_t at = 0, waited = 0;
    Status taken;
    while (taken && waited < 3) {
      std::size_t given = 0;
      for (const iovec& piece : incoming.room()) {
        const std::size_t part = std::min({piece.iov_len, stream.size() - at - given,
                                           tear + 1 - std::min<std::size_t>(given, tear + 1)});
        if (part > 0) std::memcpy(piece.iov_base, stream.data() + at + given, part);
        given += part;
      }
      at += given;
      waited = given == 0 ? waited + 1 : 0;
      taken = incoming.take(given, receiver);
    }
    incoming.abandon(receiver);
  }
  check(receiver.is_even());
  check(regions.remove(region));
  return 0;
}
