// The words for settings that are one of several: the same in files, on command lines and in what
// people are shown. Each list is in the order of its enum (settings.h), whose text_of() reads it.
// Thread: constant data.
#pragma once

#include <array>
#include <string_view>

namespace arcomm {

inline constexpr std::array<std::string_view, 5> kLogLevels{"trace", "debug", "info", "warn",
                                                            "error"};
inline constexpr std::array<std::string_view, 2> kLogFormats{"text", "json"};
inline constexpr std::array<std::string_view, 3> kBackends{"auto", "host", "cuda"};
inline constexpr std::array<std::string_view, 3> kMpsChoices{"manage", "require", "off"};
inline constexpr std::array<std::string_view, 2> kNetOrders{"rank", "ring"};
inline constexpr std::array<std::string_view, 2> kNetPartials{"wide", "dtype"};
inline constexpr std::array<std::string_view, 4> kNetAlgorithms{"auto", "exchange", "direct",
                                                                "ring"};

}  // namespace arcomm
