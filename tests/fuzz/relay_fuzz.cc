// What a stranger can send on client.sock and admin.sock before gRPC hears of him and afterwards:
// the relay's reader of frames. However the bytes are cut, it must come to the same end, and never
// believe in more frames than there are bytes for, nor miss one that its sender has to pay for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/control/access/frame_reader.h"

namespace {

using Side = arcomm::FrameReader::Side;

constexpr std::size_t kHeaderBytes = 9;

struct End {
  bool refused = false, prefaced = false, greeted = false, in_frame = false;
  std::uint64_t frames = 0;
  std::uint64_t calls = 0, resets = 0, others = 0;
  friend bool operator==(const End&, const End&) = default;
};

// In pieces as the relay's reads may cut them: `cuts` repeats.
End read(std::span<const std::byte> bytes, std::span<const std::uint8_t> cuts, Side side) {
  arcomm::FrameReader reader(side);
  End end;
  for (std::size_t at = 0, turn = 0; at < bytes.size() && !end.refused; ++turn) {
    const std::size_t wanted = cuts.empty() ? bytes.size() : cuts[turn % cuts.size()] + 1u;
    const auto piece = bytes.subspan(at, std::min(wanted, bytes.size() - at));
    end.refused = !reader.read(piece).ok();
    at += piece.size();
  }
  if (end.refused) return {.refused = true};
  end.prefaced = reader.prefaced();
  end.greeted = reader.greeted();
  end.in_frame = reader.in_frame();
  end.frames = reader.frames();
  end.calls = reader.counts().calls;
  end.resets = reader.counts().resets;
  end.others = reader.counts().others;
  return end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::span<const std::uint8_t> cuts(data, 4);
  const auto bytes = std::as_bytes(std::span(data + 4, size - 4));
  for (const Side side : {Side::Client, Side::Server}) {
    const End whole = read(bytes, {}, side);
    if (whole != read(bytes, cuts, side)) __builtin_trap();
    if (whole.frames * kHeaderBytes > bytes.size()) __builtin_trap();
    if ((whole.calls + whole.resets + whole.others) * kHeaderBytes > bytes.size()) __builtin_trap();
    if (whole.greeted && !whole.prefaced) __builtin_trap();
    if (whole.greeted != (whole.frames > 0)) __builtin_trap();
    if (whole.refused && side == Side::Server) __builtin_trap();
  }
  return 0;
}
