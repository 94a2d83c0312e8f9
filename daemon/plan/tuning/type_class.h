// Types that cost alike on the host: 16-bit floats are widened to float32 and rounded again.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/types.h"

namespace arcomm {

enum class TypeClass : std::uint8_t { Plain, Half };

constexpr TypeClass class_of(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16 ? TypeClass::Half : TypeClass::Plain;
}

constexpr std::string_view text_of(TypeClass type_class) {
  switch (type_class) {
    case TypeClass::Plain:
      return "plain";
    case TypeClass::Half:
      return "half";
  }
  return "unknown";
}

constexpr std::optional<TypeClass> class_named(std::string_view name) {
  for (const TypeClass type_class : {TypeClass::Plain, TypeClass::Half}) {
    if (text_of(type_class) == name) return type_class;
  }
  return std::nullopt;
}

}  // namespace arcomm
