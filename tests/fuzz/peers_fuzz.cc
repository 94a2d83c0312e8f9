// What a stranger can say on the port of other daemons: any sequence of Greet, Prove, Connect and
// the rest, over several connections. Every call is answered once; who has not shown that he knows
// the token reaches nobody, and who has is called what he proved to be.
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/peers/peer_calls.h"
#include "transport/net/addresses/interfaces.h"
#include "transport/net/addresses/subnet.h"
#include "transport/net/rails.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)

constexpr ConnectionNumber kConnections = 4;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

// The interfaces that a link would be made over, as the answering side pairs them.
void pair(const v1::ConnectRequest& request) {
  static const std::vector<net::Interface> here{
      {.name = "a", .host = "10.0.0.2", .prefix_bits = 24, .speed_mbits = 100'000},
      {.name = "b", .host = "fe80::2%b", .prefix_bits = 64}};
  std::vector<net::FarInterface> there;
  for (int i = 0; i < request.addresses_size() && i < 16; ++i) {
    if (!net::ip_family(request.addresses(i))) return;
    there.push_back({request.addresses(i),
                     i < request.speeds_mbits_size() ? request.speeds_mbits(i) : std::uint32_t{0}});
  }
  const std::vector<net::Rail> rails = net::pair_rails(here, there);
  for (const net::Rail& rail : rails) check(rail.here < here.size() && rail.there < there.size());
  if (rails.empty()) return;
  for (const std::size_t rail : net::deal_streams(rails, 1 + request.streams() % 16))
    check(rail < rails.size());
}

class Strangers {
 public:
  // One step: which call, over which connection, whether he knows the token, and the call's bytes.
  void step(std::uint8_t what, const std::string& bytes) {
    caller_.connection = 1 + (what >> 3) % kConnections;
    knows_ = (what & 0x80) != 0;
    switch (what & 7) {
      case 0:
      case 1:
        return greet(bytes);
      case 2:
        return prove(bytes);
      case 3:
        return call<v1::ConnectRequest, v1::ConnectReply>(bytes, &PeerCalls::connect);
      case 4:
        return call<v1::BeatRequest, v1::BeatReply>(bytes, &PeerCalls::beat);
      case 5:
        return call<v1::LeaveRequest, v1::PeerEmpty>(bytes, &PeerCalls::leave);
      case 6:
        return call<v1::FormRequest, v1::FormReply>(bytes, &PeerCalls::form);
      case 7:
        calls_.ended(caller_.connection);
        shown_.erase(caller_.connection);
        said_.erase(caller_.connection);
    }
  }

 private:
  struct Shown {
    v1::NodeIdentity who;
    std::string pass;
  };

  void greet(const std::string& bytes) {
    v1::GreetRequest request;
    if (!request.ParseFromString(bytes)) return;
    if (knows_) {
      request.mutable_from()->set_version(kPeerVersion);
      request.mutable_from()->set_byte_order(identity_of(self_).byte_order());
      request.mutable_challenge()->resize(32);
    }
    int answers = 0;
    calls_.greet(caller_, request, [&](const Result<v1::GreetReply>& reply) {
      ++answers;
      if (!reply) return;
      check(request.challenge().size() == 32 && request.from().instance() != 0);
      shown_.erase(caller_.connection);
      said_[caller_.connection] = {request.challenge(), reply->challenge(), request.from(),
                                   reply->from()};
      check(reply->proof() == proof_of_server(token_, said_[caller_.connection]));
    });
    check(answers == 1);
  }

  void prove(const std::string& bytes) {
    v1::ProveRequest request;
    if (!request.ParseFromString(bytes)) return;
    const auto said = said_.extract(caller_.connection);
    if (knows_ && said) {
      request.set_instance(said.mapped().client.instance());
      request.set_proof(proof_of_client(token_, said.mapped()));
    }
    int answers = 0;
    calls_.prove(caller_, request, [&](const Result<v1::ProveReply>& reply) {
      ++answers;
      if (!reply) return;
      check(said && request.proof() == proof_of_client(token_, said.mapped()));
      std::erase_if(
          shown_, [&](const auto& one) { return one.second.who.instance() == request.instance(); });
      shown_[caller_.connection] = {said.mapped().client, reply->pass()};
    });
    check(answers == 1);
  }

  template <typename Request, typename Reply, typename Call>
  void call(const std::string& bytes, Call which) {
    Request request;
    if (!request.ParseFromString(bytes)) return;
    const auto shown = shown_.find(caller_.connection);
    const bool may = knows_ && shown != shown_.end();
    if (may) {
      request.mutable_pass()->set_instance(shown->second.who.instance());
      request.mutable_pass()->set_pass(shown->second.pass);
    }
    int answers = 0;
    (calls_.*which)(caller_, request, [&](const Result<Reply>& reply) {
      ++answers;
      check(!reply || may);
      check(reply || !may || reply.error().code != ErrorCode::Unauthenticated);
    });
    check(answers == 1);
  }

  // Somebody got through.
  void reached(const PeerNode& who) const {
    const auto shown = shown_.find(caller_.connection);
    check(knows_ && shown != shown_.end() && who.instance == shown->second.who.instance());
  }

  const PeerToken token_{"0123456789abcdef0123456789abcdef"};
  const PeerNode self_{.address = "10.0.0.1:7400", .name = "self", .instance = 1};
  Caller caller_;
  bool knows_ = false;
  std::map<ConnectionNumber, Greeting> said_;  // and not proven
  std::map<ConnectionNumber, Shown> shown_;
  PeerCalls calls_{{.token = token_,
                    .self = [this]() -> const PeerNode& { return self_; },
                    .proven =
                        [this](ConnectionNumber connection, const PeerNode&, std::uint64_t losses) {
                          check(knows_ && connection == caller_.connection);
                          return losses;
                        },
                    .refused = [](const Error& why) { check(!why.message.empty()); },
                    .left = [this](const PeerNode& who) { reached(who); },
                    .connect =
                        [this](const PeerNode& who, const v1::ConnectRequest& request,
                               const Answer<v1::ConnectReply>& answer) {
                          reached(who);
                          pair(request);
                          answer(v1::ConnectReply{});
                        },
                    .handler = []() -> PeerHandler* { return nullptr; }}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Strangers strangers;
  std::span<const std::uint8_t> left(data, size);
  for (int steps = 0; left.size() >= 2 && steps < 64; ++steps) {
    const std::size_t length = std::min<std::size_t>(left[1], left.size() - 2);
    strangers.step(left[0], {reinterpret_cast<const char*>(left.data()) + 2, length});
    left = left.subspan(2 + length);
  }
  return 0;
}
