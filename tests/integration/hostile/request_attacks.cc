// Attacks by the rings of somebody who has attached.
#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "tests/integration/hostile/attack.h"

namespace arcomm::support {
namespace {

struct Lone {
  RawSession* session = nullptr;
  MemberId member;
  RawSession::Buffer buffer;
  explicit operator bool() const { return session != nullptr; }
};

// A session of its own, since these may end in quarantine.
Lone make_lone(Attacker& attacker) {
  RawSession* session = attacker.fresh_session();
  if (session == nullptr) return {};
  const Result<MemberId> member = session->create_lone_communicator();
  const Result<RawSession::Buffer> buffer = session->allocate(65'536);
  if (!member || !buffer) return {};
  return {session, *member, *buffer};
}

void take_completions(RawSession& session) {
  while (session.next_completion(milliseconds(1))) {
  }
}

std::uint64_t failing_requests(Attacker& attacker) {
  std::uint64_t sent = 0;
  const Lone lone = make_lone(attacker);
  while (lone && attacker.goes_on()) {
    ring::WorkRequest request = valid_request(lone.member, sent, lone.buffer.id, 16);
    request.send_offset_bytes = attacker.below(4) == 0 ? 2 : lone.buffer.bytes;
    if (attacker.below(4) == 0) request.dtype = 200;
    if (lone.session->submit(request) == ring::Push::Done) {
      ++sent;
    } else {
      take_completions(*lone.session);
    }
  }
  return sent;
}

std::uint64_t valid_flood(Attacker& attacker) {
  std::uint64_t sent = 0;
  const Lone lone = make_lone(attacker);
  while (lone && attacker.goes_on()) {
    if (lone.session->submit(valid_request(lone.member, sent, lone.buffer.id, 64)) ==
        ring::Push::Done) {
      ++sent;
    } else if (attacker.below(64) != 0) {  // mostly it reads what it is told
      take_completions(*lone.session);
    }
  }
  return sent;
}

std::uint64_t rubbish_in_rings(Attacker& attacker) {
  std::uint64_t sent = 0;
  while (attacker.goes_on()) {
    const Lone lone = make_lone(attacker);
    if (!lone) break;
    for (int i = 0; i < 200 && attacker.goes_on(); ++i, ++sent) {
      ring::WorkRequest request =
          valid_request(lone.member, static_cast<std::uint64_t>(i), lone.buffer.id, 16);
      auto* bytes = reinterpret_cast<unsigned char*>(&request);
      for (std::uint64_t flips = attacker.below(6); flips > 0; --flips)
        bytes[attacker.below(sizeof(request))] = static_cast<unsigned char>(attacker.random()());
      lone.session->submit(request);
      if (attacker.below(100) == 0) lone.session->stamp_next_slot(attacker.random()());
      if (attacker.below(8) == 0) take_completions(*lone.session);
    }
  }
  return sent;
}

// Communicators of two, one of whose ranks calls and one does not; all of it ends at one moment.
std::uint64_t common_deadlines(Attacker& attacker) {
  constexpr std::size_t kCommunicators = 16;
  constexpr std::uint64_t kEach = 200;
  const Lone caller = make_lone(attacker);
  RawSession* absent = attacker.fresh_session();
  if (!caller || absent == nullptr) return 0;
  std::uint64_t sent = 0;
  while (attacker.goes_on()) {
    std::vector<MemberId> members;
    for (std::size_t i = 0; i < kCommunicators; ++i) {
      const std::string id = attacker.random_bytes(128);
      std::thread other(
          [&] { static_cast<void>(absent->create_communicator(id, 1, 2, milliseconds(1000))); });
      const Result<MemberId> member =
          caller.session->create_communicator(id, 0, 2, milliseconds(1000));
      other.join();
      if (!member) return sent;
      members.push_back(*member);
    }
    const Clock::time_point common = Clock::now() + milliseconds(20);
    for (std::uint64_t seq = 0; seq < kEach; ++seq) {
      for (const MemberId member : members) {
        ring::WorkRequest request = valid_request(member, seq, caller.buffer.id, 16);
        const auto left = std::chrono::nanoseconds(common - Clock::now()).count();
        request.timeout_ns = left > 1000 ? static_cast<std::uint64_t>(left) : 1000;
        if (attacker.below(4) == 0) request.send_offset_bytes = caller.buffer.bytes;
        if (caller.session->submit(request) != ring::Push::Done) {
          take_completions(*caller.session);
        } else {
          ++sent;
        }
      }
    }
    std::this_thread::sleep_until(common);
    take_completions(*caller.session);
    for (const MemberId member : members) static_cast<void>(caller.session->abort(member, "over"));
  }
  return sent;
}

}  // namespace

std::span<const Attack> request_attacks() {
  static constexpr Attack kAttacks[] = {{"failing requests in masses", failing_requests},
                                        {"a flood of requests", valid_flood},
                                        {"rubbish in the rings", rubbish_in_rings},
                                        {"requests with one deadline", common_deadlines}};
  return kAttacks;
}

}  // namespace arcomm::support
