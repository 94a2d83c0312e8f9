#include "config/text_rules.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <string>

namespace arcomm {
namespace {

constexpr std::size_t kMaxPath = 4095;
constexpr std::size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;  // 107
constexpr std::size_t kMaxSocketFolder = 90;  // leaves room for "/client.sock"
constexpr std::size_t kMaxGroupName = 32;
constexpr std::size_t kMaxKernelName = 32;

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f;
  });
}

bool is_absolute_path(std::string_view text, std::size_t longest) {
  return !text.empty() && text.front() == '/' && text.size() <= longest && is_printable(text);
}

bool is_ip_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view digits = text.substr(colon + 1);
  unsigned port = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failure != std::errc{} || end != digits.data() + digits.size() || port > 65535) return false;
  std::string_view host = text.substr(0, colon);
  const bool is_bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  if (host.size() >= INET6_ADDRSTRLEN) return false;
  in6_addr address{};
  return inet_pton(is_bracketed ? AF_INET6 : AF_INET, std::string(host).c_str(), &address) == 1;
}

}  // namespace

bool is_folder(std::string_view text) {
  return is_absolute_path(text, kMaxPath);
}

bool is_socket_folder(std::string_view text) {
  return is_absolute_path(text, kMaxSocketFolder);
}

bool is_file_or_nothing(std::string_view text) {
  return text.empty() || is_absolute_path(text, kMaxPath);
}

bool is_group_name_or_nothing(std::string_view text) {
  if (text.empty()) return true;
  return text.size() <= kMaxGroupName && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

bool is_kernel_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxKernelName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

bool is_listen_address(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.empty()) return true;
  if (text.starts_with(kUnix)) return is_absolute_path(text.substr(kUnix.size()), kMaxSocketPath);
  return is_ip_and_port(text);
}

}  // namespace arcomm
