// What a daemon says to another one about meetings: announcements and plans, as bytes and, where
// they parse, as messages whose reading must keep what the rest relies on; and the address in a
// unique id.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "daemon/comm/world.h"
#include "daemon/control/peers/meetings/meeting_messages.h"
#include "proto/meeting_address.h"

namespace {

namespace v1 = arcommd::v1;

void fuzz_announcement(const std::string& bytes) {
  v1::AnnounceRequest request;
  if (!request.ParseFromString(bytes)) return;
  const auto said = arcomm::read(request, {});
  if (!said) return;
  if (said->ranks < 1 || said->ranks > arcomm::kMaxRanks) __builtin_trap();
  for (const auto& [rank, caller] : said->callers) {
    if (rank < 0 || rank >= said->ranks) __builtin_trap();
  }
  if (said->failure && said->failure->code == arcomm::ErrorCode::Ok) __builtin_trap();
}

void fuzz_plan(const std::string& bytes) {
  v1::FormRequest request;
  if (!request.ParseFromString(bytes)) return;
  const arcomm::PeerId self =
      request.nodes_size() == 0 ? 1 : request.nodes(0).identity().instance();
  const auto plan = arcomm::read(request, self, {});
  if (!plan) return;
  const auto world = arcomm::World::create(plan->spec.node_of_rank, plan->spec.here);
  if (!world || world->nodes() != plan->nodes.size()) __builtin_trap();
  if (!std::ranges::equal(world->seated(), plan->here)) __builtin_trap();
}

void fuzz_address(const std::string& bytes) {
  arcomm::UniqueIdBytes id{};
  std::memcpy(id.data() + 64, "ARCNODE1", 8);
  std::memcpy(id.data() + 72, bytes.data(), std::min<std::size_t>(bytes.size(), 56));
  const std::string address(arcomm::meeting_address(id));
  arcomm::UniqueIdBytes again{};
  arcomm::write_meeting_address(again, address);
  if (arcomm::meeting_address(again) != address) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  fuzz_announcement(bytes);
  fuzz_plan(bytes);
  fuzz_address(bytes);
  return 0;
}
