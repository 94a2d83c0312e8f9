// Attacks by control calls of somebody who has attached.
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/integration/hostile/attack.h"

namespace arcomm::support {
namespace {

// Cut inside of a character, with controls, or long.
std::string strange_name(Attacker& attacker) {
  switch (attacker.below(4)) {
    case 0:
      return "cut \xe2\x82";
    case 1:
      return "a\nlevel=error\x1b[2J\xff";
    case 2:
      return std::string(3000, 'n') + "\xf0\x9f";
    default:
      return attacker.random_bytes(64);
  }
}

std::uint64_t attach_storm(Attacker& attacker) {
  std::uint64_t made = 0;
  for (; attacker.goes_on(); ++made) {
    RawSession::Options options;
    options.process_name = strange_name(attacker);
    if (attacker.below(8) == 0) options.device = attacker.random_bytes(100);
    if (attacker.below(16) == 0) options.ring_abi_major = 77;
    attacker.fresh_session(options);
    if (attacker.below(4) == 0) attacker.forget_sessions();
  }
  return made;
}

std::uint64_t join_storm(Attacker& attacker) {
  std::uint64_t made = 0;
  RawSession* session = attacker.session();
  for (; session != nullptr && attacker.goes_on(); ++made) {
    const Result<MemberId> member = session->create_lone_communicator();
    if (!member) break;
    if (attacker.below(4) != 0) static_cast<void>(session->abort(*member, strange_name(attacker)));
  }
  return made;
}

// Ranks whose peers never come, many at a time.
std::uint64_t joins_without_peers(Attacker& attacker) {
  RawSession* session = attacker.session();
  if (session == nullptr) return 0;
  std::vector<std::uint64_t> made(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < made.size(); ++i) {
    threads.emplace_back([&made, i, session, end = attacker.end(), seed = attacker.random()()] {
      std::mt19937_64 random(seed);
      for (; Clock::now() < end; ++made[i]) {
        std::string id(128, '\0');
        for (char& byte : id) byte = static_cast<char>(random());
        const int ranks = static_cast<int>(2 + random() % 63);
        static_cast<void>(session->create_communicator(id, static_cast<Rank>(random() % 2), ranks,
                                                       milliseconds(1 + random() % 20)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const std::uint64_t each : made) sum += each;
  return sum;
}

std::uint64_t fat_messages(Attacker& attacker) {
  std::uint64_t sent = 0;
  RawSession* session = attacker.session();
  for (; session != nullptr && attacker.goes_on(); ++sent) {
    if (attacker.below(8) == 0) {
      static_cast<void>(
          oversized_attach(attacker.runtime_dir(), std::size_t{1} << (12 + attacker.below(11))));
    } else {
      static_cast<void>(session->join_with_gpus(attacker.below(40'000)));
    }
  }
  return sent;
}

// One file, page by page, again and again, to the quota or the node's share.
std::uint64_t registrations(Attacker& attacker) {
  std::uint64_t made = 0;
  RawSession* session = attacker.session();
  const UniqueFd memory = make_sparse(1 << 20);
  std::vector<BufferId> held;
  while (session != nullptr && attacker.goes_on()) {
    const Result<RawSession::Buffer> buffer =
        session->register_memory(memory.get(), 4096 * attacker.below(200), 4096);
    if (buffer) {
      held.push_back(buffer->id);
      ++made;
    }
    if (!held.empty() && (!buffer || attacker.below(8) == 0)) {
      static_cast<void>(session->release(held.back()));
      held.pop_back();
    }
  }
  return made;
}

std::uint64_t allocations(Attacker& attacker) {
  std::uint64_t made = 0;
  RawSession* session = attacker.session();
  for (; session != nullptr && attacker.goes_on(); ++made) {
    const std::uint64_t bytes = std::uint64_t{1} << (12 + attacker.below(30));
    const Result<RawSession::Buffer> buffer = session->allocate(bytes);
    if (buffer && attacker.below(2) == 0) static_cast<void>(session->release(buffer->id));
  }
  return made;
}

std::uint64_t sparse_memory(Attacker& attacker) {
  std::uint64_t made = 0;
  RawSession* session = attacker.session();
  for (; session != nullptr && attacker.goes_on(); ++made) {
    UniqueFd memory = make_sparse(std::uint64_t{12} << 30);
    const std::uint64_t bytes = std::uint64_t{1} << (24 + attacker.below(10));
    const Result<RawSession::Buffer> buffer = session->register_memory(memory.get(), 0, bytes);
    if (memory && attacker.below(2) == 0) {
      ::fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  static_cast<off_t>(bytes));
    }
    if (buffer && attacker.below(4) != 0) static_cast<void>(session->release(buffer->id));
    if (attacker.below(8) == 0) attacker.hold(std::move(memory));
  }
  return made;
}

// Memory whose pages come from where he says, also those that the daemon touches.
std::uint64_t bound_memory(Attacker& attacker) {
  constexpr std::uint64_t kBytes = 1 << 20;
  RawSession* session = attacker.fresh_session();
  if (session == nullptr) return 0;
  const Result<MemberId> member = session->create_lone_communicator();
  if (!member) return 0;
  std::uint64_t made = 0, seq = 0;
  for (; attacker.goes_on(); ++made) {
    const UniqueFd memory = make_sparse(kBytes);
    void* mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (mapped == MAP_FAILED) break;
    constexpr int kPolicies[] = {MPOL_BIND, MPOL_PREFERRED, MPOL_INTERLEAVE,
                                 MPOL_BIND | MPOL_F_STATIC_NODES};
    const unsigned long nodes = 1 + attacker.below(7);
    const auto bind = [&](unsigned flags) {
      ::syscall(SYS_mbind, mapped, kBytes, kPolicies[attacker.below(4)], &nodes, 8 * sizeof(nodes),
                flags);
    };
    bind(0);
    const Result<RawSession::Buffer> buffer = session->register_memory(memory.get(), 0, kBytes);
    if (buffer) {
      if (session->submit(valid_request(*member, seq, buffer->id, kBytes / sizeof(float))) ==
          ring::Push::Done)
        ++seq;
      bind(MPOL_MF_MOVE);  // while the daemon works in it
      static_cast<void>(session->next_completion(milliseconds(20)));
      static_cast<void>(session->release(buffer->id));
    }
    ::munmap(mapped, kBytes);
  }
  return made;
}

// Pages that go while the daemon works in them, and come again as its own.
std::uint64_t holes_in_memory(Attacker& attacker) {
  constexpr std::uint64_t kBytes = 1 << 20, kPages = kBytes / 4096;
  RawSession* session = attacker.fresh_session();
  if (session == nullptr) return 0;
  const Result<MemberId> member = session->create_lone_communicator();
  const UniqueFd memory = make_sparse(kBytes);
  const Result<RawSession::Buffer> buffer = session->register_memory(memory.get(), 0, kBytes);
  if (!member || !buffer) return 0;
  std::uint64_t made = 0, seq = 0;
  for (; attacker.goes_on(); ++made) {
    if (session->submit(valid_request(*member, seq, buffer->id, kBytes / sizeof(float))) ==
        ring::Push::Done)
      ++seq;
    for (int i = 0; i < 16; ++i) {
      const std::uint64_t first = attacker.below(kPages);
      ::fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(4096 * first),
                  static_cast<off_t>(4096 * (1 + attacker.below(kPages - first))));
    }
    static_cast<void>(session->next_completion(milliseconds(20)));
  }
  return made;
}

std::uint64_t plans_in_a_flood(Attacker& attacker) {
  RawSession* session = attacker.fresh_session();
  if (session == nullptr) return 0;
  const Result<MemberId> member = session->create_lone_communicator();
  const Result<RawSession::Buffer> buffer = session->allocate(65'536);
  if (!member || !buffer) return 0;
  std::uint64_t made = 0;
  for (; attacker.goes_on(); ++made) {
    const std::uint64_t count =
        attacker.below(4) == 0 ? attacker.random()() : attacker.below(16'384);
    static_cast<void>(session->create_plan(*member, buffer->id, count));
  }
  return made;
}

// Many communicators, and in the memory where their ranks' calls meet nothing is as it should be.
std::uint64_t rubbish_where_calls_meet(Attacker& attacker) {
  RawSession *one = attacker.fresh_session(), *other = attacker.fresh_session();
  std::uint64_t made = 0;
  while (one != nullptr && other != nullptr && attacker.goes_on()) {
    const std::string id = attacker.random_bytes(128);
    std::thread second(
        [&] { static_cast<void>(other->join_in_call(id, 1, 2, milliseconds(1000))); });
    const Result<RawSession::InCallSeat> seat = one->join_in_call(id, 0, 2, milliseconds(1000));
    second.join();
    if (!seat) break;
    ++made;
    auto* const words = static_cast<std::uint64_t*>(seat->memory);
    const std::uint64_t count = seat->bytes / sizeof(*words), first_page = 4096 / sizeof(*words);
    for (int i = 0; count != 0 && i < 2000; ++i)
      words[attacker.below(i % 2 == 0 ? first_page : count)] = attacker.random()();
    if (attacker.below(8) == 0) static_cast<void>(one->abort(seat->member, strange_name(attacker)));
  }
  return made;
}

}  // namespace

std::span<const Attack> control_attacks() {
  static constexpr Attack kAttacks[] = {{"attaches in a storm, cut names", attach_storm},
                                        {"joins and aborts in a storm", join_storm},
                                        {"joins whose peers never come", joins_without_peers},
                                        {"fat control messages", fat_messages},
                                        {"registrations up to the quota", registrations},
                                        {"allocations of any size", allocations},
                                        {"sparse memory", sparse_memory},
                                        {"memory bound to a node", bound_memory},
                                        {"holes in registered memory", holes_in_memory},
                                        {"plans in a flood", plans_in_a_flood},
                                        {"rubbish where calls meet", rubbish_where_calls_meet}};
  return kAttacks;
}

}  // namespace arcomm::support
