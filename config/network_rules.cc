#include "config/network_rules.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

namespace arcomm {
namespace {

constexpr std::size_t kMostPeers = 1024;
constexpr std::size_t kMostHostName = 253;
constexpr std::size_t kMostNodeName = 63;
constexpr std::size_t kMostInterfaceName = 15;  // as the kernel has it
constexpr unsigned kMostCpu = 1023;

bool is_word(std::string_view text, std::string_view others) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [others](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

bool is_number(std::string_view text, unsigned least, unsigned most) {
  unsigned value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc{} && end == text.data() + text.size() && value >= least &&
         value <= most;
}

bool is_ip(int family, std::string_view text) {
  in6_addr address{};
  return text.size() < INET6_ADDRSTRLEN &&
         inet_pton(family, std::string(text).c_str(), &address) == 1;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Whether each of what stands between commas is accepted.
template <typename Accepts>
bool is_list(std::string_view text, Accepts&& accepts) {
  if (trimmed(text).empty()) return text.empty();
  for (;;) {
    const std::size_t comma = text.find(',');
    if (!accepts(trimmed(text.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool is_peer(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !is_number(text.substr(colon + 1), 1, 65535)) return false;
  const std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']'))
    return is_ip(AF_INET6, host.substr(1, host.size() - 2));
  return is_word(host, "-.") && host.size() <= kMostHostName;
}

bool is_interface(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos)
    return is_word(text, "-_.:@*?") && text.size() <= kMostInterfaceName;
  const std::string_view network = text.substr(0, slash), bits = text.substr(slash + 1);
  return (is_ip(AF_INET, network) && is_number(bits, 0, 32)) ||
         (is_ip(AF_INET6, network) && is_number(bits, 0, 128));
}

bool is_cpu_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (!is_number(text.substr(0, dash), 0, kMostCpu)) return false;
  if (dash == std::string_view::npos) return true;
  unsigned first = 0;
  (void)std::from_chars(text.data(), text.data() + dash, first);
  return is_number(text.substr(dash + 1), first, kMostCpu);
}

}  // namespace

bool is_peer_list(std::string_view text) {
  std::set<std::string_view> seen;
  return is_list(text, [&seen](std::string_view one) {
    return is_peer(one) && seen.insert(one).second && seen.size() <= kMostPeers;
  });
}

bool is_peer_listen_address(std::string_view text) {
  return !text.starts_with("unix:") && is_listen_address(text);
}

bool is_node_name(std::string_view text) {
  return text.empty() || (is_word(text, "-_.") && text.size() <= kMostNodeName);
}

bool is_interface_list(std::string_view text) {
  return is_list(text, is_interface);
}

bool is_cpu_list(std::string_view text) {
  return is_list(text, is_cpu_range);
}

std::optional<SettingConflict> find_conflict_of_peers(const Settings& settings) {
  const Settings::Net& net = settings.net;
  const int tls = !net.tls_cert.empty() + !net.tls_key.empty() + !net.tls_ca.empty();
  if (tls != 0 && tls != 3) {
    const std::string missing = net.tls_cert.empty()  ? "net.tls_cert"
                                : net.tls_key.empty() ? "net.tls_key"
                                                      : "net.tls_ca";
    return SettingConflict{missing, missing +
                                        " is missing: TLS between daemons takes net.tls_cert, "
                                        "net.tls_key and net.tls_ca, all three or none"};
  }
  const bool has_peers = !net.peers.empty() || !net.listen.empty();
  if (has_peers && net.token_file.empty() && tls == 0) {
    return SettingConflict{
        "net.token_file",
        "net.token_file is missing: with net.peers or net.listen, daemons must know each other by "
        "a token (a file of mode 0600, the same on all nodes) or by TLS (net.tls_cert, "
        "net.tls_key, net.tls_ca)"};
  }
  return std::nullopt;
}

}  // namespace arcomm
