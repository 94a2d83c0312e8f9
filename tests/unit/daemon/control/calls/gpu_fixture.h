// A control plane whose worker has GPUs: two where a test starts it with both names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {

using grpc::StatusCode;

inline const std::string kFirst = "GPU-11111111-2222-3333-4444-555555555555";
inline const std::string kSecond = "GPU-66666666-7777-8888-9999-000000000000";

class GpuTest : public ControlTest {
 protected:
  void SetUp() override {
    ControlTest::SetUp();
    settings_.quota.registered_bytes = 8 << 20;
  }
  v1::RegisterBufferRequest register_request(const Session& session) const {
    v1::RegisterBufferRequest request;
    *request.mutable_session() = session.ref;
    request.set_ipc_handle(std::string(64, 'h'));
    request.set_offset_bytes(512);
    request.set_length_bytes(1024);
    request.set_allocation_bytes(4096);
    return request;
  }
  Outcome register_buffer(const v1::RegisterBufferRequest& request, v1::BufferReply* reply) {
    return call(*client_, &v1::NodeControl::Stub::RegisterBuffer, request, reply);
  }
  // The descriptors of a ticket.
  static std::size_t fetch(Session& session, std::uint64_t ticket) {
    std::vector<UniqueFd> fds;
    const auto answer = session.fds->ask(fd_request(FdMessageKind::Fetch, ticket), {}, &fds);
    return answer && answer->code == 0 ? fds.size() : 0;
  }
};

}  // namespace arcomm::test
