#include "daemon/control/peers/peer_calls.h"

#include <utility>

namespace arcomm {
namespace {

Error stopping(const PeerNode& self) {
  return error(ErrorCode::Unavailable, Reason::ShuttingDown, self.to_string(), " stops");
}

}  // namespace

Result<PeerNode> PeerCalls::check(const Caller& caller, const v1::Pass& pass) const {
  Result<PeerNode> from = passes_.check(caller.connection, pass);
  if (from && stops_) return stopping(parts_.self());
  return from;
}

void PeerCalls::greet(const Caller& caller, const v1::GreetRequest& request,
                      const Answer<v1::GreetReply>& answer) {
  if (stops_) return answer(stopping(parts_.self()));
  Result<v1::GreetReply> reply = passes_.greet(caller.connection, parts_.self(), request);
  if (!reply) parts_.refused(reply.error());
  answer(std::move(reply));
}

void PeerCalls::prove(const Caller& caller, const v1::ProveRequest& request,
                      const Answer<v1::ProveReply>& answer) {
  if (stops_) return answer(stopping(parts_.self()));
  Result<PeerPasses::Proven> proven = passes_.prove(caller.connection, request);
  if (!proven) {
    parts_.refused(proven.error());
    return answer(std::move(proven).error());
  }
  proven->reply.set_losses(parts_.proven(caller.connection, proven->node, request.losses()));
  answer(std::move(proven->reply));
}

void PeerCalls::beat(const Caller& caller, const v1::BeatRequest& request,
                     const Answer<v1::BeatReply>& answer) {
  const Result<PeerNode> from = check(caller, request.pass());
  if (!from) return answer(from.error());
  v1::BeatReply reply;
  reply.set_instance(parts_.self().instance);
  answer(std::move(reply));
}

// One that stops, too, hears it from one that does: both go in peace.
void PeerCalls::leave(const Caller& caller, const v1::LeaveRequest& request,
                      const Answer<v1::PeerEmpty>& answer) {
  const Result<PeerNode> from = passes_.check(caller.connection, request.pass());
  if (!from) return answer(from.error());
  answer(v1::PeerEmpty{});
  parts_.left(*from);
}

void PeerCalls::connect(const Caller& caller, const v1::ConnectRequest& request,
                        Answer<v1::ConnectReply> answer) {
  const Result<PeerNode> from = check(caller, request.pass());
  if (!from) return answer(from.error());
  parts_.connect(*from, request, std::move(answer));
}

template <typename Request>
Result<PeerNode> PeerCalls::admit(const Caller& caller, const Request& request) const {
  Result<PeerNode> from = check(caller, request.pass());
  if (!from || parts_.handler() != nullptr) return from;
  return error(ErrorCode::Unavailable, Reason::ShuttingDown,
               "this daemon forms no communicators with others now");
}

void PeerCalls::announce(const Caller& caller, const v1::AnnounceRequest& request,
                         Answer<v1::AnnounceReply> answer) {
  const Result<PeerNode> from = admit(caller, request);
  if (!from) return answer(from.error());
  parts_.handler()->announced(*from, request, std::move(answer));
}

void PeerCalls::form(const Caller& caller, const v1::FormRequest& request,
                     Answer<v1::FormReply> answer) {
  const Result<PeerNode> from = admit(caller, request);
  if (!from) return answer(from.error());
  parts_.handler()->form(*from, request, std::move(answer));
}

void PeerCalls::commit(const Caller& caller, const v1::CommitRequest& request,
                       Answer<v1::PeerEmpty> answer) {
  const Result<PeerNode> from = admit(caller, request);
  if (!from) return answer(from.error());
  parts_.handler()->commit(*from, request, std::move(answer));
}

void PeerCalls::abandon(const Caller& caller, const v1::AbandonRequest& request,
                        Answer<v1::PeerEmpty> answer) {
  const Result<PeerNode> from = admit(caller, request);
  if (!from) return answer(from.error());
  parts_.handler()->abandon(*from, request, std::move(answer));
}

}  // namespace arcomm
