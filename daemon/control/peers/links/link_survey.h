// Measures the links to all peers of net.peers, one after the other: for `arctl tune --network` and
// `arctl bench --network`.
// Thread: any but the control loop, which does the work; run() blocks, and every wait in it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/peers/peers.h"
#include "daemon/plan/network/network_tuning.h"
#include "proto/status.h"

namespace arcomm {

struct SurveyedLink {
  LinkFigures figures;                    // of the faster of the two ways
  Status status;                          // why there are none
  LinkSpeed with_copies, without_copies;  // no bytes a second: not possible
  // What workers' links to this peer carried meanwhile, as far as it was seen: the figures are then
  // lower than the network's.
  std::uint64_t carried_bytes = 0;
};

class LinkSurvey {
 public:
  // Points to null once there are no peers any more; touched on the loop.
  LinkSurvey(std::shared_ptr<EventLoop> loop, std::shared_ptr<Peers*> peers)
      : loop_(std::move(loop)), peers_(std::move(peers)) {}

  using Progress = std::function<void(double progress, const SurveyedLink& link)>;
  // Of these addresses, by default of all; FailedPrecondition where there is none to measure, and
  // NotFound for one that net.peers does not name. What cannot be measured is in the list, too.
  Result<std::vector<SurveyedLink>> run(const std::vector<std::string>& wanted,
                                        const Progress& progress,
                                        const std::function<bool()>& cancelled);

 private:
  struct Candidate {
    PeerNode node;
    Status alive;
  };
  Result<std::vector<Candidate>> candidates(const std::vector<std::string>& wanted,
                                            const std::function<bool()>& cancelled);
  SurveyedLink survey(const Candidate& candidate, const std::function<bool()>& cancelled);
  Result<LinkSpeed> measure(const PeerNode& peer, bool without_copies,
                            const std::function<bool()>& cancelled);
  Result<std::uint64_t> bytes_with(PeerId peer, const std::function<bool()>& cancelled);

  // What `ask` answers on the loop, once it does.
  template <typename Answered>
  Result<Answered> on_loop(
      std::function<void(Peers& peers, std::function<void(Result<Answered>)> answer)> ask,
      const std::function<bool()>& cancelled);

  std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<Peers*> peers_;
};

}  // namespace arcomm
