// Daemons without sockets and threads: each has a rendezvous, both kinds of meetings and a worker
// that forms what it is asked to. Messages go over a network whose delays, losses, repetitions and
// deaths a test decides, under a clock of its own. Links between workers are told of members that
// go, as stream 0 tells them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/peers/meetings/node_meetings.h"
#include "daemon/control/peers/meetings/root_meetings.h"
#include "daemon/control/rendezvous/rendezvous.h"
#include "proto/meeting_address.h"

namespace arcomm::test {

using std::chrono::milliseconds;

class SimulatedNode;

class SimulatedNet {
 public:
  using Clock = MeetingClock;
  explicit SimulatedNet(std::size_t nodes, unsigned seed = 1);
  ~SimulatedNet();

  Clock::time_point now() const { return now_; }
  void after(Clock::duration delay, std::function<void()> task) {
    tasks_.emplace(now_ + delay, std::move(task));
  }
  void run_for(Clock::duration time);
  SimulatedNode& node(std::size_t index) { return *nodes_[index]; }
  std::size_t size() const { return nodes_.size(); }
  // Its run ends; the others hear of it after `notice`. It can be started anew.
  void kill(std::size_t index, Clock::duration notice = milliseconds(20));
  void restart(std::size_t index);
  SimulatedNode* at(const std::string& address);
  Clock::duration delay();
  bool happens(unsigned percent) { return random_() % 100 < percent; }

  // What the network does, in order of the question: whether a message of this kind ("form") from
  // one node to another is lost. Empty: none.
  std::function<bool(const std::string& kind, std::size_t from, std::size_t to)> loses;
  unsigned percent_lost = 0, percent_twice = 0;
  milliseconds longest_delay{1};
  std::size_t messages = 0;
  std::vector<std::string> addresses;
  std::mt19937 random_;
  std::uint64_t next_instance = 100;

  void left(std::uint64_t communicator, std::size_t at);

 private:
  Clock::time_point now_{Clock::duration(std::chrono::hours(1))};
  std::multimap<Clock::time_point, std::function<void()>> tasks_;
  std::vector<std::unique_ptr<SimulatedNode>> nodes_;
};

class SimulatedNode final : public PeerMessenger, public LinkMaker {
 public:
  struct Answered {
    int times = 0;
    SimulatedNet::Clock::time_point at;
    std::optional<Result<Rendezvous::Joined>> result;
  };

  SimulatedNode(SimulatedNet& net, std::size_t index)
      : net_(net),
        index_(index),
        self_{net.addresses[index], "node-" + std::string(1, static_cast<char>('a' + index)),
              net.next_instance++} {
    start();
  }
  void start() {
    rendezvous = std::make_unique<Rendezvous>(
        [this](std::size_t, CommunicatorSpec spec, Rendezvous::Formed formed) {
          form_on_worker(std::move(spec), std::move(formed));
        },
        [this](std::size_t, SessionId, MemberId member) { leave(member); });
    const auto now = [this] { return net_.now(); };
    here = std::make_unique<NodeMeetings>(
        NodeMeetings::Parts{.rendezvous = *rendezvous,
                            .peers = *this,
                            .links = *this,
                            .name_of_worker = [this](std::size_t) { return worker; },
                            .allows_gpu_codecs = [this] { return allows_gpu_codecs; },
                            .now = now});
    root = std::make_unique<RootMeetings>(RootMeetings::Parts{
        .peers = *this,
        .policy = [] { return NetworkPolicy{}; },
        .random = [this] { return net_.random_() | 1ull << 40; },
        .is_live_here = [this](const UniqueIdBytes& id, uid_t uid,
                               Rank rank) { return rendezvous->live(id, uid, rank).has_value(); },
        .now = now});
  }
  void tick() {
    if (!alive) return;
    rendezvous->sweep(net_.now());
    here->tick();
    root->tick();
  }

  // A call of a client, whose answer is kept under the number that this returns.
  std::size_t call(const UniqueIdBytes& id, Rank rank, int ranks, milliseconds timeout,
                   uid_t uid = 1000) {
    Rendezvous::Call call;
    call.unique_id = id;
    call.serial = ++serials_;
    call.rank = rank;
    call.ranks = ranks;
    call.session =
        SessionId{static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(index_ + 1)};
    call.peer.uid = uid;
    call.peer.pid = static_cast<pid_t>(1000 * (index_ + 1)) + rank;
    call.device = worker;
    call.segment_limit_bytes = 1 << 20;
    call.default_coding = default_coding;
    call.launch_table_version = launch_table_version;
    call.called_at = net_.now();
    call.deadline = net_.now() + timeout;
    const auto kept = std::make_shared<Answered>();
    answers.push_back(kept);
    call.answer = [this, kept](Result<Rendezvous::Joined> result) {
      ++kept->times;
      kept->at = net_.now();
      kept->result = std::move(result);
    };
    rendezvous->join(std::move(call));
    return answers.size() - 1;
  }
  const Result<Rendezvous::Joined>* answer(std::size_t call) const {
    return answers[call]->result ? &*answers[call]->result : nullptr;
  }
  std::string why(std::size_t call) const {
    const auto* given = answer(call);
    return given == nullptr ? "no answer" : given->ok() ? "joined" : given->error().to_string();
  }

  std::unique_ptr<Rendezvous> rendezvous;
  std::unique_ptr<NodeMeetings> here;
  std::unique_ptr<RootMeetings> root;
  bool alive = true;
  std::string worker = "host:0";
  Coding default_coding;                                     // of the clients that call from now on
  std::uint32_t launch_table_version = kLaunchTableVersion;  // likewise
  bool allows_gpu_codecs = true;
  bool says_nothing_of_codecs = false;  // as a daemon of an older release
  std::optional<Error> refuses;         // the worker
  milliseconds forming_takes{1};
  std::optional<Error> no_link;
  bool waits_for_links = false;  // and never hears of them
  std::vector<std::shared_ptr<Answered>> answers;
  struct Held {
    CommunicatorSpec spec;
    Rank rank = 0;
  };
  std::map<MemberId, Held> members;  // formed and not left
  std::vector<std::string> links;    // that were asked for

  // A communicator has lost a member elsewhere.
  void revoke(std::uint64_t communicator) {
    for (const auto& [member, held] : members) {
      if (held.spec.communicator != communicator) continue;
      const CommunicatorSpec spec = held.spec;
      return rendezvous->dissolve(spec.unique_id, spec.epoch);
    }
  }

  // PeerMessenger
  void use_handler(PeerHandler*) override {}
  bool has_peers() const override { return net_.addresses.size() > 1; }
  const PeerNode& self() const override { return self_; }
  const std::vector<std::string>& addresses() const override { return net_.addresses; }
  PeerNode find(const std::string& address) const override {
    SimulatedNode* other = net_.at(address);
    return other != nullptr && other->alive ? other->self_ : PeerNode{address, "", 0};
  }
  void announce(const std::string& address, v1::AnnounceRequest request,
                MeetingClock::time_point deadline,
                PeerMessenger::Done<v1::AnnounceReply> done) override {
    if (says_nothing_of_codecs) request.clear_gpu_codecs(), request.clear_coding_rules();
    send<v1::AnnounceReply>("announce", address, 0, deadline, std::move(done),
                            [request, from = self_](SimulatedNode& to, auto answer) {
                              answer(to.root->announced(from, request));
                            });
  }
  void form(const PeerNode& peer, v1::FormRequest request, MeetingClock::time_point deadline,
            PeerMessenger::Done<v1::FormReply> done) override {
    send<v1::FormReply>("form", peer.address, peer.instance, deadline, std::move(done),
                        [request, from = self_](SimulatedNode& to, auto answer) {
                          to.here->form(from, request, answer);
                        });
  }
  void commit(const PeerNode& peer, v1::CommitRequest request, MeetingClock::time_point deadline,
              PeerMessenger::Done<v1::PeerEmpty> done) override {
    send<v1::PeerEmpty>("commit", peer.address, peer.instance, deadline, std::move(done),
                        [request, from = self_](SimulatedNode& to, auto answer) {
                          answer(empty_or(to.here->commit(from, request)));
                        });
  }
  void abandon(const PeerNode& peer, v1::AbandonRequest request, MeetingClock::time_point deadline,
               PeerMessenger::Done<v1::PeerEmpty> done) override {
    send<v1::PeerEmpty>("abandon", peer.address, peer.instance, deadline, std::move(done),
                        [request, from = self_](SimulatedNode& to, auto answer) {
                          answer(empty_or(to.here->abandon(from, request)));
                        });
  }
  // LinkMaker
  void ensure(const PeerNode& peer, const std::string& name, MeetingClock::time_point,
              LinkMaker::Done done) override {
    links.push_back(peer.name + " " + name);
    if (waits_for_links) return;
    net_.after(net_.delay(), [this, done = std::move(done), run = self_.instance, peer] {
      if (run != self_.instance || !alive) return;
      const PeerNode there = find(peer.address);
      if (no_link) return done(*no_link);
      if (there.instance != peer.instance)
        return done(error(ErrorCode::Unavailable, Reason::RemoteDied, "no link to ", peer.name));
      done({});
    });
  }

 private:
  friend class SimulatedNet;

  static Result<v1::PeerEmpty> empty_or(const Status& status) {
    if (!status) return status.error();
    return v1::PeerEmpty();
  }

  template <typename Reply, typename Deliver>
  void send(const std::string& kind, const std::string& address, PeerId instance,
            MeetingClock::time_point deadline, PeerMessenger::Done<Reply> done, Deliver deliver) {
    ++net_.messages;
    const auto waits = std::make_shared<PeerMessenger::Done<Reply>>(std::move(done));
    const PeerId run = self_.instance;
    const auto answer = [this, waits, run](Result<Reply> reply) {
      if (!*waits || run != self_.instance || !alive) return;
      std::exchange(*waits, nullptr)(std::move(reply));
    };
    net_.after(std::max(deadline - net_.now(), MeetingClock::duration(milliseconds(1))),
               [answer, address] {
                 answer(error(ErrorCode::DeadlineExceeded, Reason::Timeout, address,
                              " did not answer in time"));
               });
    SimulatedNode* to = net_.at(address);
    if (to == nullptr || !to->alive || (instance != 0 && to->self_.instance != instance)) {
      net_.after(net_.delay(), [answer, address] {
        answer(error(ErrorCode::Unavailable, Reason::RemoteDied, address, ": connection refused"));
      });
      return;
    }
    if (to != this && net_.loses && net_.loses(kind, index_, to->index_)) return;
    const int times = to != this && net_.happens(net_.percent_twice) ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      if (to != this && net_.happens(net_.percent_lost)) continue;
      net_.after(net_.delay(), [this, to, answer, deliver, there = to->self_.instance, run] {
        if (!to->alive || to->self_.instance != there) return;
        deliver(*to, [this, to, answer](Result<Reply> reply) {
          if (to != this && net_.happens(net_.percent_lost)) return;
          net_.after(net_.delay(), [answer, reply = std::move(reply)] { answer(reply); });
        });
      });
    }
  }

  void form_on_worker(CommunicatorSpec spec, Rendezvous::Formed formed) {
    // As a worker, which answers at the deadline that it is given, if it has not formed by then.
    const SimulatedNet::Clock::duration left =
        spec.deadline_ns == 0
            ? forming_takes
            : std::chrono::nanoseconds(spec.deadline_ns) - net_.now().time_since_epoch();
    net_.after(std::min<SimulatedNet::Clock::duration>(forming_takes, left),
               [this, spec, formed, left, run = self_.instance] {
                 if (run != self_.instance || !alive) return;
                 if (refuses) return formed(*refuses);
                 if (left < forming_takes)
                   return formed(
                       error(ErrorCode::DeadlineExceeded, Reason::Timeout, "not formed in time"));
                 std::vector<MemberId> made;
                 for (const RankSpec& rank : spec.ranks) {
                   made.push_back({++ids_, 1});
                   members[made.back()] = {spec, rank.rank};
                 }
                 formed(made);
               });
  }
  void leave(MemberId member) {
    const auto at = members.find(member);
    if (at == members.end()) return;
    const std::uint64_t communicator = at->second.spec.communicator;
    members.erase(at);
    if (communicator != 0) net_.left(communicator, index_);
  }

  SimulatedNet& net_;
  const std::size_t index_;
  PeerNode self_;
  std::uint64_t serials_ = 0;
  std::uint32_t ids_ = 0;
};

inline SimulatedNet::SimulatedNet(std::size_t nodes, unsigned seed) : random_(seed) {
  for (std::size_t i = 0; i < nodes; ++i)
    addresses.push_back("10.0.0." + std::to_string(i + 1) + ":7400");
  for (std::size_t i = 0; i < nodes; ++i)
    nodes_.push_back(std::make_unique<SimulatedNode>(*this, i));
}
inline SimulatedNet::~SimulatedNet() = default;

inline SimulatedNode* SimulatedNet::at(const std::string& address) {
  for (const auto& node : nodes_) {
    if (node->self_.address == address) return node.get();
  }
  return nullptr;
}
inline SimulatedNet::Clock::duration SimulatedNet::delay() {
  return std::chrono::microseconds(100 + random_() %
                                             (1000 * static_cast<unsigned>(longest_delay.count())));
}
inline void SimulatedNet::run_for(Clock::duration time) {
  const Clock::time_point end = now_ + time;
  // Timers have the precision of a step.
  while (now_ < end) {
    now_ += std::chrono::microseconds(500);
    while (!tasks_.empty() && tasks_.begin()->first <= now_) {
      const auto task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
      task();
    }
    for (const auto& node : nodes_) node->tick();
  }
}
inline void SimulatedNet::kill(std::size_t index, Clock::duration notice) {
  SimulatedNode& dead = *nodes_[index];
  dead.alive = false;
  const PeerNode peer = dead.self_;
  for (const auto& [member, held] : dead.members) left(held.spec.communicator, index);
  dead.members.clear();
  after(notice, [this, peer] {
    for (const auto& node : nodes_) {
      if (!node->alive || node->self_.instance == peer.instance) continue;
      const Error why = error(ErrorCode::Unavailable, Reason::RemoteDied, "no beat for 20 ms");
      node->here->peer_lost(peer, why);
      node->root->peer_lost(peer, why);
    }
  });
}
inline void SimulatedNet::restart(std::size_t index) {
  SimulatedNode& node = *nodes_[index];
  node.self_.instance = next_instance++;
  node.start();
  node.alive = true;
}
inline void SimulatedNet::left(std::uint64_t communicator, std::size_t at) {
  if (communicator == 0) return;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i == at) continue;
    after(delay(), [node = nodes_[i].get(), communicator] {
      if (node->alive) node->revoke(communicator);
    });
  }
}

inline constexpr milliseconds kSoon{1000};  // what a call waits, where that does not matter

// That meets at this node, and is another one for another number.
inline UniqueIdBytes id_at(const SimulatedNet& net, std::size_t node, std::uint8_t number = 1) {
  UniqueIdBytes id{};
  id.fill(static_cast<std::byte>(number));
  write_meeting_address(id, net.addresses[node]);
  return id;
}

}  // namespace arcomm::test
