// Attacks on the ports that ask nobody who he is: the metrics', and the one of other daemons.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "proto/arcommd/v1/peer.grpc.pb.h"
#include "tests/integration/hostile/attack.h"

namespace arcomm::support {
namespace {

namespace v1 = arcommd::v1;

// Requests that are none, that never end, and answers that nobody reads.
std::uint64_t metrics_port(Attacker& attacker) {
  std::uint64_t made = 0;
  for (; attacker.goes_on(); ++made) {
    UniqueFd fd = attacker.connect_metrics();
    if (!fd) {
      ::usleep(1000);
      continue;
    }
    std::string bytes = "GET /metrics HTTP/1.1\r\n";
    if (attacker.below(2) == 0) bytes += "Host: " + attacker.random_bytes(attacker.below(5000));
    if (attacker.below(2) == 0) bytes += "\r\n\r\n";
    if (attacker.below(4) == 0) bytes = attacker.random_bytes(1 + attacker.below(20'000));
    static_cast<void>(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    if (attacker.below(8) == 0) attacker.hold(std::move(fd));
  }
  return made;
}

// "127.0.0.1:7400", which the soak names; "" where its daemon has no such port.
std::string daemons_port() {
  const char* const named = std::getenv("ARCOMM_HOSTILE_DAEMONS_PORT");
  return named == nullptr ? "" : named;
}

UniqueFd connect_to_daemons_port(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + colon + 1)));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0)
    fd.reset();
  return fd;
}

std::uint64_t rubbish_for_daemons(Attacker& attacker) {
  const std::string address = daemons_port();
  std::uint64_t made = 0;
  for (; !address.empty() && attacker.goes_on(); ++made) {
    UniqueFd fd = connect_to_daemons_port(address);
    if (!fd) break;
    std::string bytes = attacker.random_bytes(1 + attacker.below(4000));
    if (attacker.below(2) == 0) bytes.insert(0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    static_cast<void>(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    if (attacker.below(8) == 0) attacker.hold(std::move(fd));
  }
  return made;
}

// As another daemon that does not know the token.
std::uint64_t false_daemons(Attacker& attacker) {
  const std::string address = daemons_port();
  std::uint64_t made = 0;
  while (!address.empty() && attacker.goes_on()) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto stub = v1::PeerService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    const auto patience = std::chrono::system_clock::now() + milliseconds(500);
    for (int i = 0; i < 10 && attacker.goes_on(); ++i, ++made) {
      v1::GreetRequest greet;
      v1::NodeIdentity& from = *greet.mutable_from();
      from.set_address("10.9.9." + std::to_string(attacker.below(250)) + ":7400");
      from.set_name("false\n" + std::string(attacker.below(3000), 'n'));
      from.set_instance(attacker.below(4));
      from.set_version(static_cast<std::uint32_t>(attacker.below(5)));
      from.set_byte_order(0x01020304);
      greet.set_challenge(attacker.random_bytes(attacker.below(2) == 0 ? 32 : 100));
      v1::GreetReply greeted;
      grpc::ClientContext greeting, proving;
      greeting.set_deadline(patience);
      proving.set_deadline(patience);
      static_cast<void>(stub->Greet(&greeting, greet, &greeted));
      v1::ProveRequest prove;
      prove.set_instance(from.instance());
      prove.set_proof(attacker.below(2) == 0 ? greeted.proof() : attacker.random_bytes(32));
      v1::ProveReply proved;
      static_cast<void>(stub->Prove(&proving, prove, &proved));
    }
  }
  return made;
}

}  // namespace

std::span<const Attack> port_attacks() {
  static constexpr Attack kAttacks[] = {{"rubbish for the metrics port", metrics_port},
                                        {"rubbish for the daemons' port", rubbish_for_daemons},
                                        {"false daemons", false_daemons}};
  return kAttacks;
}

}  // namespace arcomm::support
