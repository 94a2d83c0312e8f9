// Clients in PID namespaces of their own: the kernel tells the daemon no useful pid, so the hang-up
// must do. Fault matrix 41, host part.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class Namespaces : public NodeTest {
 protected:
  std::unique_ptr<ClientProcess> isolated() {
    ClientProcess::Options options;
    options.environment = node().environment();
    options.prefix = {"/usr/bin/unshare",     "--pid",        "--fork",
                      "--kill-child=SIGKILL", "--mount-proc", "--ipc"};
    return ClientProcess::start(options);
  }
  static bool can_unshare() {
    if (::access("/usr/bin/unshare", X_OK) != 0) return false;
    const Ran ran =
        run_to_end({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--ipc", "/bin/true"},
                   {}, milliseconds(5000));
    return ran.exit.has_value() && ran.exit->clean();
  }
};

TEST_F(Namespaces, RanksInSeparatePidNamespacesReduceAndTheirDeathIsSeen) {
  if (!can_unshare()) GTEST_SKIP() << "needs the right to make PID namespaces";
  start();
  Clients clients;
  for (int rank = 0; rank < 3; ++rank) {
    clients.push_back(isolated());
    ASSERT_NE(clients.back(), nullptr);
    clients.back()->expect_ok("init 15000");
  }
  form_communicator(clients, "c0");
  expect_all_ok(clients, "allreduce c0 50000 float32 sum mem=alloc");
  clients[0]->tell("allreduce c0 1000 float32 sum");
  clients[1]->tell("allreduce c0 1000 float32 sum");
  wait_in_flight(2);
  clients[2]->child().kill();
  for (const std::size_t rank : {0u, 1u}) {
    const Reply reply = clients[rank]->hear(milliseconds(15000));
    EXPECT_EQ(reply.reason, arcReasonRemoteDied) << reply.to_string();
    EXPECT_EQ(reply.rank, 2) << reply.to_string();
    EXPECT_LT(reply.took, kPrompt);
  }
  expect_trace("RemoteDied", 2);
  expect_metric_at_least("arcomm_communicators_revoked_total", {"RemoteDied"}, 1);
  expect_log("is revoked: rank 2 ");
  // A container that comes back has a new namespace and the same pid inside.
  auto replacement = isolated();
  replacement->expect_ok("init");
  replacement->expect_ok("comm c1 1 " + replacement->expect_ok("id") + " 0");
  replacement->expect_ok("allreduce c1 1000 float32 sum mem=alloc");
}

}  // namespace
}  // namespace arcomm::support
