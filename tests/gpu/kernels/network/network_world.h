// All nodes of a test on one GPU, the links between them in memory, and one proxy thread that
// drives every node's FIFOs. Results are held to the reference bit for bit. Thread: the test's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/proxy/proxy_thread.h"
#include "tests/gpu/kernels/network/network_node.h"
#include "tests/support/sessions/memory_link.h"

namespace arcomm::gpu {

class NetworkWorld final : public proxy::ProxyEvents {
 public:
  static constexpr std::uint64_t kTimeoutNs = 5'000'000'000;
  enum class Links { Checked, Fast };  // Fast: bytes are moved once, and nothing else is done

  explicit NetworkWorld(const NetworkShape& shape, Links links = Links::Checked);
  ~NetworkWorld() override;

  NetworkNode& node(std::uint32_t number) { return *nodes_[number]; }
  proxy::ProxyThread& proxy() { return *proxy_; }
  proxy::MemoryLink& link(std::uint32_t a, std::uint32_t b);
  // Runs it on the proxy's thread and waits until it has.
  void on_proxy(const std::function<void(proxy::ProxyEngine&)>& task);

  // One operation of all nodes; launch() may leave some of them out.
  void prepare(std::uint32_t operation);
  void launch(std::uint32_t operation, std::uint64_t timeout_ns);
  void expect_success(std::uint32_t operation);
  void expect_reference_bits();
  void run(std::uint32_t operation);

  // What the proxy told, oldest first; waits two seconds for so many.
  std::vector<std::string> failures(std::size_t at_least = 0);
  // What links saw go wrong.
  std::vector<std::string> violations() const;

 private:
  void group_failed(std::uint64_t group, const Error& why) override;
  std::vector<std::byte> expected() const;
  void reduce_for_exchange(std::vector<std::byte>& result) const;
  void reduce_for_ring(std::vector<std::byte>& result) const;

  const NetworkShape shape_;
  std::vector<std::unique_ptr<proxy::MemoryLink>> links_;  // [smaller][larger]
  std::vector<std::unique_ptr<NetworkNode>> nodes_;
  std::vector<std::string> failures_;  // the proxy's
  bool is_ending_ = false;             // the proxy's
  std::unique_ptr<proxy::ProxyThread> proxy_;
};

}  // namespace arcomm::gpu
