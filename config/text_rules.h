// What a text setting may hold. Every rule refuses control characters: values end up in logs and
// paths.
#pragma once

#include <string_view>

namespace arcomm {

struct TextRule {
  bool (*accepts)(std::string_view);
  std::string_view allowed;  // in words, after "expected "
};

bool is_folder(std::string_view text);
bool is_socket_folder(std::string_view text);  // short enough for the longest socket path inside it
bool is_file_or_nothing(std::string_view text);
bool is_group_name_or_nothing(std::string_view text);
bool is_kernel_name(std::string_view text);
bool is_listen_address(std::string_view text);

inline constexpr TextRule kFolder{is_folder, "an absolute path"};
inline constexpr TextRule kSocketFolder{is_socket_folder,
                                        "an absolute path of at most 90 characters"};
inline constexpr TextRule kFileOrNothing{is_file_or_nothing, "an absolute path or \"\""};
inline constexpr TextRule kGroupName{is_group_name_or_nothing,
                                     "a group's name (letters, digits, _ - .) or \"\""};
inline constexpr TextRule kKernelName{is_kernel_name,
                                      "\"auto\" or a kernel's name (small letters, digits, _)"};
inline constexpr TextRule kListenAddress{
    is_listen_address,
    "<IPv4 address>:<port>, [<IPv6 address>]:<port>, unix:<absolute path of at most 107 "
    "characters>, or \"\""};

}  // namespace arcomm
