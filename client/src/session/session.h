// One attachment of this process to a daemon: rings, descriptor socket, staging memory.
// Thread: any. Ownership: shared by the library and by every communicator member that lives in it.
// A session that is lost stays lost; the library attaches anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/src/control/fd_channel.h"
#include "client/src/control/node_control.h"
#include "client/src/gpu/gpu_session.h"
#include "client/src/host/memory/staging.h"
#include "client/src/host/rings/submission.h"
#include "client/src/host/rings/waiting.h"
#include "client/src/session/deadline.h"
#include "client/src/session/due_aborts.h"
#include "proto/status.h"

namespace arcomm::client {

class Session {
 public:
  static Result<std::shared_ptr<Session>> attach(const std::string& runtime_dir,
                                                 const std::string& device, Deadline deadline);
  // Null when that session has ended. 0 is no session.
  static std::shared_ptr<Session> by_serial(std::uint64_t serial);
  static std::vector<std::shared_ptr<Session>> all();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::uint64_t serial() const { return serial_; }  // unique in this process
  const SessionKey& key() const { return attached_.key; }
  const Attached& facts() const { return attached_; }
  NodeControl& control() { return *control_; }
  FdChannel& descriptors() { return *descriptors_; }
  StagingPool& staging() { return staging_; }
  Submission& submission() { return submission_; }
  Waiting& waiting() { return waiting_; }
  // Null on the host.
  GpuSession* gpus() { return gpus_.get(); }

  bool lost() const { return submission_.lost(); }
  // Asks the socket whether the daemon is still there. Streams that wait for a daemon that is not
  // are told.
  void check();
  // The same, but for most calls nothing: for the path of every operation. Every few milliseconds.
  void check_now_and_then();
  // Aborts at the daemon the members that gave up by themselves: see DueAborts::tell().
  void tell_aborts() { aborts_.tell(); }
  // Tells the daemon and fails what is open.
  void detach(Deadline deadline);

 private:
  Session(Attached attached, std::unique_ptr<NodeControl> control,
          std::unique_ptr<FdChannel> descriptors, ring::Segment segment, UniqueFd doorbell);
  Status abort_at_daemon(MemberId member, Deadline deadline);

  const std::uint64_t serial_;
  const Attached attached_;
  const std::unique_ptr<NodeControl> control_;
  const std::unique_ptr<FdChannel> descriptors_;
  StagingPool staging_;
  DueAborts aborts_;
  Submission submission_;
  Waiting waiting_;
  std::unique_ptr<GpuSession> gpus_;
  std::atomic<std::int64_t> checked_at_ns_{0};
};

}  // namespace arcomm::client
