// A host backend whose operations between nodes are done by a simple executor: what travels is what
// comes inline with the offers, float32 sums; tests may hold up what runs.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/exec/host/host_backend.h"
#include "daemon/exec/net/network_executor.h"

namespace arcomm::test {

class InlineExecutor final : public NetworkExecutor {
 public:
  InlineExecutor(Links& links, const OfferedData& offered) : links_(links), offered_(offered) {}

  Status form(Communicator& communicator, const CommunicatorSpec& spec) override {
    if (refuses_to_form)
      return error(ErrorCode::ResourceExhausted, Reason::Quota, "net.staging_bytes is used up");
    ++formed;
    // As an executor would tell where data go; it comes early at whom has not formed it yet.
    const net::WindowBody window{.region = 1, .slots = 1, .slot_bytes = 1};
    for (std::uint32_t node = 0; node < spec.nodes.size(); ++node) {
      if (node == spec.here) continue;
      links_.send(spec.nodes[node].peer, net::MessageKind::Window,
                  {.communicator = spec.communicator,
                   .epoch = static_cast<std::uint32_t>(communicator.epoch)},
                  {std::as_bytes(std::span(&window, 1))});
    }
    return {};
  }
  void forget(Communicator&) override { ++forgotten; }
  std::span<const std::byte> inline_data(Communicator& communicator,
                                         const Arrival& arrival) override {
    partial_.assign(arrival.signature.send_count, 0.0F);
    for (std::size_t seat = 0; seat < communicator.seats.size(); ++seat) {
      const auto* input = reinterpret_cast<const float*>(arrival.operations[seat]->send);
      for (std::size_t i = 0; i < partial_.size(); ++i) partial_[i] += input[i];
    }
    return std::as_bytes(std::span(partial_));
  }
  Status receive(Communicator&, std::uint32_t, net::MessageKind, const net::FrameHeader&,
                 std::span<const std::byte>) override {
    ++received;
    return {};
  }
  Backend::Started start(Communicator& communicator, const OfferedData&, std::uint64_t,
                         Failure& failure) override {
    failure = {};
    if (holds) {
      held_.push_back(&communicator);
      return Backend::Started::Running;
    }
    finish(communicator);
    return Backend::Started::Ended;
  }
  bool work() override { return false; }
  bool collect(std::vector<Outcome>& outcomes) override {
    if (holds || held_.empty()) return false;
    for (Communicator* communicator : std::exchange(held_, {})) {
      const Failure& failure = communicator->board.head()->failure;
      if (failure.ok()) finish(*communicator);
      outcomes.push_back({.communicator = communicator, .failure = failure});
    }
    return true;
  }
  void stop(Communicator&) override {}
  bool idle() const override { return held_.empty(); }

  std::atomic<bool> holds{false}, refuses_to_form{false};
  std::atomic<int> formed{0}, forgotten{0}, received{0};

 private:
  void finish(Communicator& communicator) {
    const Arrival& arrival = *communicator.board.head();
    std::vector<float> sum(arrival.signature.send_count, 0.0F);
    for (std::uint32_t node = 0; node < communicator.world.nodes(); ++node) {
      const auto data = offered_.inline_data(communicator, arrival.seq, node);
      ASSERT_EQ(data.size(), sum.size() * sizeof(float));
      const auto* partial = reinterpret_cast<const float*>(data.data());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += partial[i];
    }
    for (std::size_t seat = 0; seat < communicator.seats.size(); ++seat)
      if (!sum.empty())
        std::memcpy(arrival.operations[seat]->recv, sum.data(), sum.size() * sizeof(float));
  }

  Links& links_;
  const OfferedData& offered_;
  std::vector<float> partial_;
  std::vector<Communicator*> held_;
};

class SpanningBackend final : public Backend {
 public:
  SpanningBackend(std::unique_ptr<HostBackend> host, std::atomic<InlineExecutor*>& made)
      : host_(std::move(host)), made_(made) {}

  NetworkExecutor* span_nodes(Links& links, const OfferedData& offered) override {
    offered_ = &offered;
    network_ = std::make_unique<InlineExecutor>(links, offered);
    made_ = network_.get();
    return network_.get();
  }
  bool awaits_nodes() const override { return host_->idle() && !network_->idle(); }
  Started start(Communicator& communicator, std::uint64_t now_ns, Failure& failure) override {
    return communicator.spans_nodes() ? network_->start(communicator, *offered_, now_ns, failure)
                                      : host_->start(communicator, now_ns, failure);
  }
  bool work() override { return host_->work(); }
  bool collect(std::vector<Outcome>& outcomes) override {
    const bool found = network_->collect(outcomes);
    return host_->collect(outcomes) || found;
  }
  void stop(Communicator& communicator) override {
    communicator.spans_nodes() ? network_->stop(communicator) : host_->stop(communicator);
  }
  bool idle() const override { return host_->idle() && network_->idle(); }
  void use_tuning(std::shared_ptr<const TuningTable> tuning) override {
    host_->use_tuning(std::move(tuning));
  }
  Result<bool> form(const CommunicatorSpec& spec,
                    std::unique_ptr<CommunicatorExtension>& made) override {
    return host_->form(spec, made);
  }
  Result<BufferId> add_buffer(SessionId session, BufferSpec& spec) override {
    return host_->add_buffer(session, spec);
  }

 private:
  std::unique_ptr<HostBackend> host_;
  std::atomic<InlineExecutor*>& made_;
  const OfferedData* offered_ = nullptr;
  std::unique_ptr<InlineExecutor> network_;
};

}  // namespace arcomm::test
