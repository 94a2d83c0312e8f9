// The thread of one bulk stream: takes frames off the shared queue when its connection is free for
// them, and receives. It spins for a while when nothing moves, then sleeps until the peer sends or
// wake() is called.
// Thread: made, woken and stopped by the owner; everything else is the thread's.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "proto/unique_fd.h"
#include "transport/device/lost_time.h"
#include "transport/net/connection.h"
#include "transport/net/receiver.h"
#include "transport/net/streams/bulk_queue.h"

namespace arcomm::net {

struct StreamOptions {
  std::chrono::nanoseconds spin{std::chrono::microseconds(50)};
  int cpu = -1;  // to run on; -1: any
};

// Of one stream since it was made. Nanoseconds are those of waiting: spent on looks in vain and
// pauses between them, and slept.
struct StreamCounters {
  std::string name;  // its connection's, which tells the rail
  std::uint64_t sent_bytes = 0, received_bytes = 0;
  std::uint64_t spun_ns = 0, slept_ns = 0;
  LinkStatistics link;  // as it was within the last tenth of a second, or before it failed
};

class StreamThread {
 public:
  // Called on the thread.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Bytes have come, or a payload is its poster's again.
    virtual void stream_moved() = 0;
    // Once: the connection has failed, and its frames are not given back yet.
    virtual void stream_ended(const Error& why) = 0;
  };
  // The connection is open or opening; queue, receiver and owner outlive the thread. The receiver
  // is called by several threads at once. Errors: no descriptor, no thread, no such CPU.
  static Result<std::unique_ptr<StreamThread>> start(ConnectionPtr connection, BulkQueue& queue,
                                                     Receiver& receiver, Owner& owner,
                                                     StreamOptions options);
  // Stops and joins: within a tenth of a second, in which a goodbye leaves.
  ~StreamThread();
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  // After a push and a sequentially consistent fence, which is the caller's, for all streams once.
  // True: it slept, could take a frame, and gets up. One whose receiver has no room looks by
  // itself, each millisecond.
  bool wake();
  bool is_awake() const { return !sleeps_.load(std::memory_order_relaxed); }
  StreamCounters counters() const;
  const std::string& name() const { return name_; }

 private:
  // Frames of one stream that wait in its connection: two keep it busy, and what a slow rail holds
  // is little.
  static constexpr std::size_t kMostHeld = 2;
  struct Held {
    Transfer transfer = 0;
    OnLoan* on_loan = nullptr;
    std::size_t bytes = 0;
  };

  StreamThread(ConnectionPtr connection, BulkQueue& queue, Receiver& receiver, Owner& owner,
               StreamOptions options);
  void run();
  // One: where two wait the other may be for a stream that has none.
  bool take_frame();
  bool give_back_sent();
  void give_back_all();
  void wait();
  std::uint64_t sleep(std::uint64_t from_ns);  // until when
  // The link's statistics, once in a while.
  void look_at_link(std::uint64_t now_ns);

  ConnectionPtr connection_;
  const std::string name_;
  BulkQueue& queue_;
  Owner& owner_;
  const StreamOptions options_;

  // What arrives is counted on its way to the receiver.
  class CountingReceiver final : public Receiver {
   public:
    explicit CountingReceiver(Receiver& to) : to_(to) {}
    Result<std::byte*> place(const FrameHeader& header) override { return to_.place(header); }
    Status arrived(const FrameHeader& header, std::span<const std::byte> payload) override {
      bytes.store(bytes.load(std::memory_order_relaxed) + sizeof header + payload.size(),
                  std::memory_order_relaxed);
      return to_.arrived(header, payload);
    }
    void abandoned(const FrameHeader& header) override { to_.abandoned(header); }
    std::atomic<std::uint64_t> bytes{0};

   private:
    Receiver& to_;
  };
  CountingReceiver receiver_;

  std::array<Held, kMostHeld> held_{};
  std::size_t held_count_ = 0;
  LostTime lost_time_;
  std::uint64_t idle_since_ns_ = 0;    // 0: it moves
  std::uint64_t waited_until_ns_ = 0;  // while it is idle: the end of the last wait
  std::atomic<std::uint64_t> sent_bytes_{0}, spun_ns_{0}, slept_ns_{0};

  std::uint64_t next_look_ns_ = 0;
  mutable std::mutex looking_;
  LinkStatistics link_;  // of the last look

  UniqueFd doorbell_;  // an eventfd
  std::atomic<bool> sleeps_{false}, stops_{false}, says_goodbye_{true};
  std::thread thread_;
};

}  // namespace arcomm::net
