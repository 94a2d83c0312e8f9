// What BulkStreams add to bare sockets: two processes exchange M bytes both ways over TCP on
// loopback, by puts and signals into each other's regions, and by one thread per socket that does
// nothing but send and receive. The two take turns, so that they see the same machine.
// --sizes 1K,64K,64M --streams 1,2,4 --rounds 5 --without-copies; prints a table, and JSON lines.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "client/arctl/command_line/units.h"
#include "transport/device/pause.h"
#include "transport/net/streams/bulk_streams.h"
#include "transport/net/tcp/endpoint.h"

namespace arcomm::net {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  std::vector<std::uint64_t> sizes{1024,      16384,     65536,      262144,
                                   1u << 20u, 4u << 20u, 16u << 20u, 64u << 20u};
  std::vector<std::uint64_t> streams{1, 2, 4};
  std::uint32_t rounds = 5;
  bool without_copies = false;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "net_bench: %s\n", why.c_str());
  std::_Exit(1);
}
template <typename T>
T need(Result<T> result) {
  if (!result) fail(result.error().message);
  return *std::move(result);
}

// What the two processes tell each other.
struct Shared {
  struct Side {
    std::atomic<std::uint32_t> port{0};
    std::atomic<std::uint64_t> region{0};
    std::atomic<std::uint64_t> met{0};
  };
  std::array<Side, 2> sides;
};

class Waiting {
 public:
  void once() {
    pause_briefly();
    if (++count_ % 64 == 0) sched_yield();
  }

 private:
  std::uint32_t count_ = 0;
};
template <typename Holds>
void wait_until(Holds holds) {
  for (Waiting waiting; !holds();) waiting.once();
}

class NoReceiver final : public Receiver {
  Result<std::byte*> place(const FrameHeader&) override { return nullptr; }
  Status arrived(const FrameHeader&, std::span<const std::byte>) override { return {}; }
  void abandoned(const FrameHeader&) override {}
};

// One of the two processes, with its streams and its bare sockets.
class Node {
 public:
  Node(Shared& shared, std::size_t here, std::size_t streams, std::size_t most_bytes,
       bool without_copies)
      : shared_(shared), here_(here), streams_count_(streams), to_(most_bytes), from_(most_bytes) {
    for (std::size_t i = 0; i < from_.size(); ++i) from_[i] = pattern(here_, i);
    endpoint_ = need(TcpEndpoint::open({.address = {"127.0.0.1", 0}}));
    region_ = need(endpoint_->regions().add(to_, signals_, {}));
    mine().region = region_;
    mine().port = endpoint_->address().port;
    wait_until([&] { return others().port != 0; });
    for (std::size_t i = 0; i < 2 * streams; ++i) connect(i, without_copies);
  }

  void meet() {
    const std::uint64_t round = ++mine().met;
    wait_until([&] { return others().met >= round; });
  }

  // Both return when everything has come, and what was sent is this side's again.
  void exchange_by_streams(std::size_t bytes) {
    const std::size_t chunk = std::clamp<std::size_t>(bytes / (2 * streams_count_),
                                                      std::size_t{16} << 10, kMostChunkBytes);
    for (std::size_t at = 0; at < bytes; at += chunk) {
      const Frame frame{
          .header = {.kind = FrameKind::Put, .offset = at, .region = others().region, .add = 1},
          .payload = std::span(from_).subspan(at, std::min(chunk, bytes - at))};
      on_loan_.fetch_add(1, std::memory_order_relaxed);
      Progress posted = Progress::Again;
      wait_until([&] { return (posted = bulk_.post(frame, on_loan_)) != Progress::Again; });
      if (posted == Progress::Failed) fail(bulk_.failure()->message);
      ++expected_;
    }
    wait_until([&] { return signals_[0].load(std::memory_order_acquire) >= expected_; });
    wait_until([&] { return on_loan_.load(std::memory_order_acquire) == 0; });
  }

  // The threads' part for socket `index` of `iterations` exchanges.
  void serve_socket(std::size_t index, std::size_t bytes, std::uint32_t iterations) {
    for (std::uint32_t i = 1; i <= iterations; ++i) {
      wait_until([&] { return begun_.load(std::memory_order_acquire) >= i; });
      exchange_share(index, bytes);
      ended_.fetch_add(1, std::memory_order_release);
    }
  }
  void exchange_by_sockets(std::size_t bytes) {
    begun_.fetch_add(1, std::memory_order_release);
    exchange_share(0, bytes);
    wait_until(
        [&] { return ended_.load(std::memory_order_acquire) >= begun_ * (streams_count_ - 1); });
  }

  // Microseconds of each of `iterations` exchanges.
  std::vector<double> time(bool by_sockets, std::size_t bytes, std::uint32_t iterations) {
    std::vector<std::thread> threads;
    begun_ = 0;
    ended_ = 0;
    for (std::size_t i = 1; by_sockets && i < streams_count_; ++i)
      threads.emplace_back([=, this] { serve_socket(i, bytes, iterations); });
    std::ranges::fill(to_, std::byte{0});
    meet();
    std::vector<double> samples;
    for (std::uint32_t i = 0; i < iterations; ++i) {
      const auto begin = Clock::now();
      by_sockets ? exchange_by_sockets(bytes) : exchange_by_streams(bytes);
      samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < bytes; ++i)
      if (to_[i] != pattern(1 - here_, i)) fail("a wrong byte arrived");
    meet();
    return samples;
  }

 private:
  static std::byte pattern(std::size_t side, std::size_t i) {
    return static_cast<std::byte>(1 + (i * 31 + side * 7 + (i >> 12)) % 255);
  }
  Shared::Side& mine() { return shared_.sides[here_]; }
  Shared::Side& others() { return shared_.sides[1 - here_]; }

  // The even ones are streams, the odd ones bare sockets: a connection whose socket is taken out of
  // its hands once it stands.
  void connect(std::size_t index, bool without_copies) {
    const HelloKey key{.key = {}, .stream = static_cast<std::uint32_t>(index), .rail = 0};
    ConnectionPtr connection;
    if (here_ == 0) {
      const Address peer{"127.0.0.1", static_cast<std::uint16_t>(others().port)};
      connection = need(endpoint_->connect(peer, "the other", key, {}));
    }
    NoReceiver none;
    wait_until([&] {
      if (!connection)
        connection = endpoint_->accept(
            [](const HelloKey&) -> Result<Guest> { return Guest{.peer = "the other"}; });
      if (connection && connection->progress(none) == Progress::Failed)
        fail(connection->error().message);
      return connection && connection->is_open() == Progress::Done &&
             connection->flush() == Progress::Done;
    });
    if (index % 2 == 0) {
      (void)connection->send_without_copies(without_copies);
      if (Status added = bulk_.add(std::move(connection), {}); !added) fail(added.error().message);
    } else {
      sockets_.push_back(dup(connection->descriptor()));
      kept_.push_back(std::move(connection));
    }
  }

  void exchange_share(std::size_t index, std::size_t bytes) {
    const std::size_t begin = bytes * index / streams_count_;
    const std::size_t end = bytes * (index + 1) / streams_count_;
    std::size_t sent = begin, received = begin;
    for (Waiting waiting; sent < end || received < end;) {
      const ssize_t out = sent == end ? 0
                                      : send(sockets_[index], from_.data() + sent, end - sent,
                                             MSG_DONTWAIT | MSG_NOSIGNAL);
      const ssize_t in = received == end ? 0
                                         : recv(sockets_[index], to_.data() + received,
                                                end - received, MSG_DONTWAIT);
      if (out > 0) sent += static_cast<std::size_t>(out);
      if (in > 0) received += static_cast<std::size_t>(in);
      if (out <= 0 && in <= 0) waiting.once();
    }
  }

  Shared& shared_;
  const std::size_t here_, streams_count_;
  std::vector<std::byte> to_, from_;
  std::array<SignalWord, 1> signals_{};
  std::uint64_t expected_ = 0;
  OnLoan on_loan_{0};
  std::unique_ptr<Endpoint> endpoint_;
  RegionId region_ = 0;
  NoReceiver receiver_;
  BulkStreams bulk_{receiver_};
  std::vector<int> sockets_;
  std::vector<ConnectionPtr> kept_;
  std::atomic<std::uint32_t> begun_{0};
  std::atomic<std::uint64_t> ended_{0};
};

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

// One of the two processes for one number of streams; the first prints.
void run_node(Shared& shared, std::size_t here, std::size_t streams, const BenchOptions& options) {
  Node node(shared, here, streams, std::ranges::max(options.sizes), options.without_copies);
  for (const std::uint64_t bytes : options.sizes) {
    const auto iterations = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>((std::uint64_t{64} << 20) / bytes, 3, 1000));
    std::vector<double> by_streams, by_sockets;
    for (std::uint32_t round = 0; round <= options.rounds; ++round) {
      const auto ours = node.time(false, bytes, iterations);
      const auto bare = node.time(true, bytes, iterations);
      if (round == 0) continue;  // it warms up
      by_streams.insert(by_streams.end(), ours.begin(), ours.end());
      by_sockets.insert(by_sockets.end(), bare.begin(), bare.end());
    }
    if (here != 0) continue;
    const double ours = median(by_streams), bare = median(by_sockets);
    std::printf("%2zu streams %10llu bytes: streams %9.1f us, sockets %9.1f us, ratio %.2f\n",
                streams, static_cast<unsigned long long>(bytes), ours, bare, ours / bare);
    std::printf(
        "{\"bench\": \"net\", \"streams\": %zu, \"bytes\": %llu, \"us\": %.2f, \"bare_us\": "
        "%.2f}\n",
        streams, static_cast<unsigned long long>(bytes), ours, bare);
    std::fflush(stdout);
  }
}

std::vector<std::uint64_t> numbers_of(const std::string& text) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto number = arctl::parse_bytes(std::string_view(text).substr(at, end - at));
    if (!number || *number == 0) fail("bad argument: " + text);
    numbers.push_back(*number);
    at = end + 1;
  }
  return numbers;
}

BenchOptions parse(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--without-copies") {
      options.without_copies = true;
      continue;
    }
    ++i;
    if (name == "--sizes") {
      options.sizes = numbers_of(value);
    } else if (name == "--streams") {
      options.streams = numbers_of(value);
    } else if (name == "--rounds") {
      options.rounds = static_cast<std::uint32_t>(numbers_of(value).front());
    } else {
      fail("bad argument: " + name);
    }
  }
  return options;
}

int run(int argc, char** argv) {
  const BenchOptions options = parse(argc, argv);
  for (const std::uint64_t streams : options.streams) {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no shared memory");
    auto* const shared = new (memory) Shared;
    const pid_t child = fork();
    if (child < 0) fail("no process");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_node(*shared, 1, streams, options);
      std::_Exit(0);
    }
    run_node(*shared, 0, streams, options);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace arcomm::net

int main(int argc, char** argv) {
  return arcomm::net::run(argc, argv);
}
