#include "client/src/control/wire.h"

#include <utility>

namespace arcomm::client {
namespace {

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

}  // namespace

void WireWriter::varint(std::uint64_t value) {
  while (value >= 0x80) {
    out_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out_.push_back(static_cast<char>(value));
}

void WireWriter::number(std::uint32_t field, std::uint64_t value) {
  if (value == 0) return;
  varint((std::uint64_t{field} << 3) | kVarint);
  varint(value);
}

void WireWriter::bytes(std::uint32_t field, std::string_view value) {
  if (value.empty()) return;
  varint((std::uint64_t{field} << 3) | kLength);
  varint(value.size());
  out_.append(value);
}

void WireWriter::message(std::uint32_t field, const WireWriter& value) {
  varint((std::uint64_t{field} << 3) | kLength);
  varint(value.out_.size());
  out_.append(value.out_);
}

bool WireReader::varint(std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return fail();
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80u) == 0) return true;
  }
  return fail();
}

bool WireReader::next() {
  if (!ok_ || rest_.empty()) return false;
  std::uint64_t key = 0;
  if (!varint(key)) return false;
  field_ = static_cast<std::uint32_t>(key >> 3);
  number_ = 0;
  bytes_ = {};
  std::uint64_t length = 0;
  switch (key & 7) {
    case kVarint:
      return varint(number_);
    case kFixed64:
      length = 8;
      break;
    case kLength:
      if (!varint(length)) return false;
      break;
    case kFixed32:
      length = 4;
      break;
    default:
      return fail();
  }
  if (length > rest_.size()) return fail();
  bytes_ = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return true;
}

}  // namespace arcomm::client
