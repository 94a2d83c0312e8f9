// Connections between two endpoints over TCP on this machine, for links.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "daemon/exec/specs.h"
#include "transport/net/endpoint.h"
#include "transport/net/tcp/endpoint.h"

namespace arcomm::test {

class NoReceiver final : public net::Receiver {
 public:
  Result<std::byte*> place(const net::FrameHeader&) override { return nullptr; }
  Status arrived(const net::FrameHeader&, std::span<const std::byte>) override { return {}; }
  void abandoned(const net::FrameHeader&) override {}
};

// A node's end of the wires. It outlives its links.
struct TestEndpoint {
  explicit TestEndpoint(int host) {
    net::EndpointOptions options;
    options.address = {"127.0.0." + std::to_string(host), 0};
    options.regions = regions;
    endpoint = net::TcpEndpoint::open(options).value();
  }
  std::shared_ptr<net::Regions> regions = std::make_shared<net::Regions>();
  std::unique_ptr<net::Endpoint> endpoint;
};

// Both open.
inline std::pair<net::ConnectionPtr, net::ConnectionPtr> connect(TestEndpoint& one,
                                                                 TestEndpoint& other,
                                                                 std::uint32_t stream) {
  net::HelloKey key{.stream = stream};
  key.key.fill(std::byte{9});
  net::Secret answer{};
  answer.fill(std::byte{10});
  net::ConnectionPtr out =
      one.endpoint->connect(other.endpoint->address(), "node-b", key, answer).value();
  net::ConnectionPtr in;
  NoReceiver nobody;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (in == nullptr || out->is_open() != net::Progress::Done) {
    if (in == nullptr)
      in = other.endpoint->accept([&](const net::HelloKey&) -> Result<net::Guest> {
        return net::Guest{.peer = "node-a", .answer = answer};
      });
    out->progress(nobody);
    if (in != nullptr) in->progress(nobody);
    EXPECT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::yield();
  }
  return {std::move(out), std::move(in)};
}

// The two ends of a link with so many bulk streams.
inline std::pair<LinkSpec, LinkSpec> link_specs(TestEndpoint& one, PeerId one_id,
                                                const std::string& one_name, TestEndpoint& other,
                                                PeerId other_id, const std::string& other_name,
                                                std::uint32_t streams) {
  LinkSpec here, there;
  here.peer = other_id;
  here.name = other_name;
  here.regions = one.regions;
  there.peer = one_id;
  there.name = one_name;
  there.regions = other.regions;
  for (std::uint32_t stream = 0; stream <= streams; ++stream) {
    auto [out, in] = connect(one, other, stream);
    if (stream == 0) {
      here.messages = std::move(out);
      there.messages = std::move(in);
    } else {
      here.bulk.push_back(std::move(out));
      there.bulk.push_back(std::move(in));
      here.bulk_options.emplace_back();
      there.bulk_options.emplace_back();
    }
  }
  return {std::move(here), std::move(there)};
}

}  // namespace arcomm::test
