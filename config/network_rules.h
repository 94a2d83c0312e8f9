// What the settings of [net] may hold, and what they may not hold together. As text_rules.h.
#pragma once

#include <optional>
#include <string_view>

#include "config/settings_table.h"
#include "config/text_rules.h"

namespace arcomm {

bool is_peer_list(std::string_view text);
bool is_peer_listen_address(std::string_view text);
bool is_node_name(std::string_view text);
bool is_interface_list(std::string_view text);
bool is_cpu_list(std::string_view text);

inline constexpr TextRule kPeerList{
    is_peer_list,
    "addresses of daemons, with commas between them: host:port, <IPv4 address>:<port> or [<IPv6 "
    "address>]:<port>, each once, at most 1024; or \"\""};
inline constexpr TextRule kPeerListenAddress{
    is_peer_listen_address, "<IPv4 address>:<port>, [<IPv6 address>]:<port>, or \"\""};
inline constexpr TextRule kNodeName{is_node_name,
                                    "a name of at most 63 letters, digits, - _ ., or \"\""};
inline constexpr TextRule kInterfaceList{
    is_interface_list,
    "interfaces, with commas between them: names, which may hold * and ?, or networks such as "
    "10.0.0.0/8 or fd00::/8; or \"\""};
inline constexpr TextRule kCpuList{is_cpu_list,
                                   "CPUs by number, such as 4-7,12, at most 1023; or \"\""};

// Settings of peers that are each right alone.
std::optional<SettingConflict> find_conflict_of_peers(const Settings& settings);

}  // namespace arcomm
