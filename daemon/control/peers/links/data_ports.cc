#include "daemon/control/peers/links/data_ports.h"

#include <sys/epoll.h>

#include <utility>

#include "transport/net/tcp/endpoint.h"

namespace arcomm {
namespace {

constexpr std::chrono::milliseconds kGreetingLimit{3000};
// What comes after the connect wakes nobody: it is looked for so often while it may come.
constexpr std::chrono::milliseconds kLook{2};

}  // namespace

Status DataPorts::open(std::vector<net::InterfaceChoice> choices) {
  choices_ = std::move(choices);
  Error last = error(ErrorCode::FailedPrecondition, Reason::None, "no interface carries data");
  for (net::InterfaceChoice& choice : choices_) {
    if (!choice.is_chosen) continue;
    Result<std::unique_ptr<net::Endpoint>> endpoint =
        net::TcpEndpoint::open({.address = {choice.interface.host, parts_.port},
                                .greeting_timeout = kGreetingLimit,
                                .peer_timeout = parts_.peer_timeout,
                                .regions = regions_});
    Status status;
    if (!endpoint) {
      status = endpoint.error();
    } else {
      status = parts_.loop.watch((*endpoint)->descriptor(), EPOLLIN,
                                 [this](std::uint32_t) { somebody_comes(); });
    }
    if (!status) {
      choice.is_chosen = false;
      choice.why = status.error().message;
      last = std::move(status).error();
      continue;
    }
    interfaces_.push_back(choice.interface);
    endpoints_.push_back(*std::move(endpoint));
  }
  if (endpoints_.empty()) return last;
  return {};
}

void DataPorts::close() {
  for (const auto& endpoint : endpoints_) parts_.loop.unwatch(endpoint->descriptor());
  endpoints_.clear();
  interfaces_.clear();
}

std::uint64_t DataPorts::refused() const {
  std::uint64_t sum = 0;
  for (const auto& endpoint : endpoints_) sum += endpoint->refused();
  return sum;
}

// Where strangers stand in line the listeners would wake the loop over and over: from here on they
// are looked at by the clock.
void DataPorts::somebody_comes() {
  look_until_ = Clock::now() + kGreetingLimit + kGreetingLimit / 4;
  if (std::exchange(is_looking_, true)) return;
  for (const auto& endpoint : endpoints_) parts_.loop.change(endpoint->descriptor(), 0);
  accept_all();
}

void DataPorts::accept_all() {
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    while (net::ConnectionPtr connection = endpoints_[i]->accept(parts_.check_key))
      parts_.accepted(std::move(connection));
  }
  if (Clock::now() < look_until_) {
    parts_.loop.after(kLook, [this] { accept_all(); });
    return;
  }
  is_looking_ = false;
  for (const auto& endpoint : endpoints_) parts_.loop.change(endpoint->descriptor(), EPOLLIN);
}

}  // namespace arcomm
