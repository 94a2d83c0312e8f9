// Protocol Buffers' wire format, as far as control.proto needs it: varints and length-delimited
// fields. Written by hand so that libarclient carries no protobuf of its own into a process that
// has another. tests/unit/client compares it with the generated code, message by message. No thread
// of its own; a Reader borrows the bytes it reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arcomm::client {

class WireWriter {
 public:
  // proto3: a field that holds its default is left out.
  void number(std::uint32_t field, std::uint64_t value);
  void bytes(std::uint32_t field, std::string_view value);
  void message(std::uint32_t field, const WireWriter& value);
  std::string take() && { return std::move(out_); }

 private:
  void varint(std::uint64_t value);
  std::string out_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  // Steps to the next field; false at the end or on malformed bytes (see ok()). Of the two values
  // one is meaningful, by the field's type.
  bool next();
  bool ok() const { return ok_; }
  std::uint32_t field() const { return field_; }
  std::uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }

 private:
  bool varint(std::uint64_t& value);
  bool fail() { return ok_ = false; }

  std::string_view rest_;
  bool ok_ = true;
  std::uint32_t field_ = 0;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace arcomm::client
