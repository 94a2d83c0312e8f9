#include "transport/net/addresses/interface_choice.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "transport/net/addresses/subnet.h"
#include "transport/net/tcp/socket.h"

namespace arcomm::net {
namespace {

// One of net.interfaces.
struct Rule {
  std::string text;
  std::optional<Subnet> network = {};  // none: it is a name
  bool is_address = false;
};

Result<std::vector<Rule>> rules_of(std::string_view list) {
  std::vector<Rule> rules;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view text = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    if (text.empty()) continue;
    Rule rule{.text = std::string(text)};
    rule.is_address = ip_family(text).has_value();
    if (rule.is_address || text.find('/') != std::string_view::npos) {
      auto network = Subnet::parse(text);
      if (!network) return std::move(network).error();
      rule.network = *network;
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

// All of 127/8 is the loopback's, but only one address of it is listed.
bool is_of(const Interface& interface, const std::string& host) {
  return interface.host == host ||
         (interface.is_loopback && ip_family(interface.host) &&
          Subnet::around(interface.host, interface.prefix_bits).contains(host));
}

void choose(InterfaceChoice& choice, std::string why) {
  if (choice.is_chosen) return;
  choice.is_chosen = true;
  choice.why = std::move(why);
}
void leave_out(InterfaceChoice& choice, std::string why) {
  choice.is_chosen = false;
  choice.why = std::move(why);
}

void apply_rules(std::vector<InterfaceChoice>& choices, const std::vector<Rule>& rules,
                 const std::string& own_host) {
  for (InterfaceChoice& choice : choices) {
    Interface& interface = choice.interface;
    leave_out(choice, "net.interfaces does not name it");
    for (const Rule& rule : rules) {
      const bool is_named = rule.is_address ? is_of(interface, rule.text)
                            : rule.network
                                ? rule.network->contains(interface.host)
                                : fnmatch(rule.text.c_str(), interface.name.c_str(), 0) == 0;
      if (!is_named || choice.is_chosen) continue;
      if (rule.is_address) {
        interface.host = rule.text;
      } else if (interface.is_loopback && is_of(interface, own_host)) {
        interface.host = own_host;
      }
      choose(choice, "net.interfaces names it: " + rule.text);
    }
  }
}

// What peers are reached over. The answer is what is to be said of those that are not reached.
std::string apply_routes(std::vector<InterfaceChoice>& choices, const InterfaceWishes& wishes,
                         const SourceTowards& source_towards) {
  std::string unreachable;
  for (InterfaceChoice& choice : choices) leave_out(choice, "no peer is reached over it");
  for (const std::string& peer : wishes.peers) {
    if (peer == wishes.own_host) continue;
    const auto source = source_towards(peer, wishes.own_host);
    if (!source) {
      unreachable += "; " + source.error().message;
      continue;
    }
    for (InterfaceChoice& choice : choices) {
      if (!is_of(choice.interface, *source)) continue;
      choice.interface.host = *source;
      choose(choice, "it routes to " + peer);
    }
  }
  return unreachable;
}

void apply_carriers(std::vector<InterfaceChoice>& choices, const std::string& own_host) {
  for (InterfaceChoice& choice : choices) {
    Interface& interface = choice.interface;
    if (is_any_address(own_host)) {
      if (interface.is_loopback) {
        leave_out(choice, "no other node is reached over it");
      } else {
        choose(choice, "no peers are known yet, and it is up");
      }
    } else if (is_of(interface, own_host)) {
      interface.host = own_host;
      choose(choice, "this daemon listens there, and no peers are known yet");
    } else {
      leave_out(choice, "this daemon listens elsewhere");
    }
  }
}

void leave_out_what_cannot(std::vector<InterfaceChoice>& choices) {
  for (InterfaceChoice& choice : choices) {
    if (!choice.is_chosen) continue;
    if (choice.interface.host.empty()) {
      leave_out(choice, "it has no IP address");
    } else if (!choice.interface.is_up) {
      leave_out(choice, "it is down");
    } else if (!choice.interface.is_running) {
      leave_out(choice, "it has no carrier");
    }
  }
}

// Of an interface with several addresses the one that the most peers can be reached from by its
// family, then one that is good everywhere, then the first.
void keep_one_address_each(std::vector<InterfaceChoice>& choices, const InterfaceWishes& wishes) {
  const auto peers_of_family = [&wishes](const std::string& host) {
    return std::ranges::count_if(wishes.peers, [&host](const std::string& peer) {
      return ip_family(peer) == ip_family(host);
    });
  };
  const auto is_better = [&](const Interface& one, const Interface& other) {
    const auto peers_of_one = peers_of_family(one.host), of_other = peers_of_family(other.host);
    if (peers_of_one != of_other) return peers_of_one > of_other;
    return !is_link_local(one.host) && is_link_local(other.host);
  };
  for (InterfaceChoice& choice : choices) {
    for (InterfaceChoice& other : choices) {
      if (&choice == &other || !choice.is_chosen || !other.is_chosen ||
          choice.interface.name != other.interface.name)
        continue;
      InterfaceChoice& worse = is_better(other.interface, choice.interface) ? choice : other;
      const InterfaceChoice& better = &worse == &choice ? other : choice;
      leave_out(worse, better.interface.name + " is used by its address " + better.interface.host);
    }
  }
}

void leave_out_other_families(std::vector<InterfaceChoice>& choices,
                              const InterfaceWishes& wishes) {
  if (wishes.peers.empty()) return;
  for (InterfaceChoice& choice : choices) {
    const auto family = ip_family(choice.interface.host);
    if (choice.is_chosen && std::ranges::none_of(wishes.peers, [&family](const auto& peer) {
          return ip_family(peer) == family;
        }))
      leave_out(choice, family == IpFamily::V6 ? "no peer has an IPv6 address"
                                               : "no peer has an IPv4 address");
  }
}

}  // namespace

Result<std::vector<InterfaceChoice>> choose_interfaces(const std::vector<Interface>& all,
                                                       const InterfaceWishes& wishes,
                                                       const SourceTowards& source_towards) {
  auto rules = rules_of(wishes.list);
  if (!rules) return std::move(rules).error();
  std::vector<InterfaceChoice> choices;
  for (const Interface& interface : all) choices.push_back({.interface = interface, .why = {}});

  std::string unreachable;
  const bool has_others = std::ranges::any_of(
      wishes.peers, [&wishes](const std::string& peer) { return peer != wishes.own_host; });
  if (!rules->empty()) {
    apply_rules(choices, *rules, wishes.own_host);
  } else if (has_others) {
    unreachable = apply_routes(choices, wishes, source_towards);
  } else {
    apply_carriers(choices, wishes.own_host);
  }
  leave_out_what_cannot(choices);
  leave_out_other_families(choices, wishes);
  keep_one_address_each(choices, wishes);
  if (std::ranges::any_of(choices, &InterfaceChoice::is_chosen)) return choices;

  std::string reasons;
  for (const InterfaceChoice& choice : choices)
    reasons += "; " + choice.interface.name + " (" + choice.interface.host + "): " + choice.why;
  return error(ErrorCode::FailedPrecondition, Reason::BadConfig,
               "no interface of this machine carries data to other daemons (look at net.interfaces "
               "and net.peers)",
               reasons, unreachable);
}

Result<std::vector<InterfaceChoice>> choose_interfaces(const InterfaceWishes& wishes) {
  const auto all = interfaces_of_machine();
  if (!all) return all.error();
  return choose_interfaces(*all, wishes, source_towards);
}

}  // namespace arcomm::net
