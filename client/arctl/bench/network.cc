#include "client/arctl/bench/network.h"

#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

constexpr double kTimeoutS = 600;  // some seconds for each peer

}  // namespace

ExitCode bench_network(const Invocation& invocation, const std::vector<std::string>& peers) {
  v1::TuneRequest request;
  request.set_bench(true);
  // A daemon of an older release, which knows no bench, tunes: it shall not keep what it finds.
  request.set_network(true);
  request.set_dry_run(true);
  for (const std::string& peer : peers) request.add_peers(peer);
  Result<Admin> admin = invocation.connect();
  if (!admin) return report(admin.error());
  v1::TuneReply last;
  const Status measured = admin->tune(request, invocation.timeout_or(kTimeoutS),
                                      [&](const v1::TuneReply& reply) { last = reply; });
  if (!measured) return report(measured.error());
  if (!last.finished()) {
    return report(error(ErrorCode::Unavailable, Reason::DaemonLost,
                        "the daemon ended the measurement before it was finished: see its log"));
  }
  if (!last.table().empty()) {
    return report(error(ErrorCode::Unimplemented, Reason::Version,
                        "this daemon is of an older release, which has no bench --network: use "
                        "arctl tune --network --dry-run"));
  }
  return print(invocation.json ? json_line(network_bench_json(last))
                               : network_bench_text(last, invocation.colour));
}

}  // namespace arcomm::arctl
