// A real client process: arcomm_test_client, which links libarclient and does what it is told over
// a pipe, one line at a time. Verbs are listed at the top of test_client.cc.
//
//   auto client = ClientProcess::start(*daemon);
//   client->expect_ok("init");
//   Reply reply = client->ask("allreduce c0 1024 float32 sum");
//
// Thread: one at a time. tell() and hear() let several clients work at once from one test thread.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/arclient.h"
#include "tests/support/processes/child_process.h"
#include "tests/support/processes/daemon_process.h"

namespace arcomm::support {

struct Reply {
  bool heard = false;  // false: the process died, or the deadline passed
  arcResult_t code = arcUnknown;
  arcReason_t reason = arcReasonNone;
  int rank = -1;         // the culprit
  milliseconds took{0};  // as the client measured the call itself
  std::string value;     // what a verb returns: an id, a hash, numbers
  std::string message;   // of a failure
  bool ok() const { return heard && code == arcSuccess; }
  std::string to_string() const;
};

class ClientProcess {
 public:
  struct Options {
    std::vector<std::string> prefix;       // a program that starts the client, with its arguments
    std::vector<std::string> environment;  // must name the runtime folder
    uid_t uid = 0;
    gid_t gid = 0;
    int user_namespace_fd = -1;  // this and the next as in ChildOptions
    std::vector<gid_t> groups;
    std::vector<std::pair<int, std::uint64_t>> limits;
    std::string log_path;
  };
  static std::unique_ptr<ClientProcess> start(const DaemonProcess& daemon);
  static std::unique_ptr<ClientProcess> start(Options options);

  pid_t pid() const { return child_.pid(); }
  ChildProcess& child() { return child_; }

  void tell(std::string_view line);
  Reply hear(milliseconds deadline = milliseconds(30000));
  Reply ask(std::string_view line, milliseconds deadline = milliseconds(30000));
  // Asserts success and returns the reply's value.
  std::string expect_ok(std::string_view line, milliseconds deadline = milliseconds(30000));

 private:
  explicit ClientProcess(ChildProcess child) : child_(std::move(child)) {}

  ChildProcess child_;
  std::string unread_;
};

// `ranks` processes, attached, with one communicator named "c0" over them. Asserts that it came
// about.
std::vector<std::unique_ptr<ClientProcess>> start_ranks(const DaemonProcess& daemon, int ranks,
                                                        std::string_view init = "init");
// One more communicator over the same processes, rank by position.
void form_communicator(const std::vector<std::unique_ptr<ClientProcess>>& clients,
                       std::string_view name);
// Tells all, then hears all: replies in rank order.
std::vector<Reply> ask_all(const std::vector<std::unique_ptr<ClientProcess>>& clients,
                           std::string_view line, milliseconds deadline = milliseconds(30000));
void expect_all_ok(const std::vector<std::unique_ptr<ClientProcess>>& clients,
                   std::string_view line, milliseconds deadline = milliseconds(30000));
// Two fresh processes do a verified AllReduce: what must work after every fault, within 5 s of it.
void expect_clean_all_reduce(const DaemonProcess& daemon);

}  // namespace arcomm::support
