// A message of control.proto as the daemon sent it, field by field: protozero reads, and its
// exceptions end here. Trusts nothing: bytes that are no message end the reading, and a field of
// another type than the protocol's says nothing. No thread of its own; borrows the bytes.
#pragma once

#include <cstdint>
#include <protozero/exception.hpp>
#include <protozero/pbf_message.hpp>
#include <string_view>

namespace arcomm::client {

// Field: an enumeration of control_fields.h.
template <typename Field>
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes.data(), bytes.size()) {}

  // Steps to the next field; false at the end or on malformed bytes (see ok()). Of the two values
  // one is meaningful, by the field's type.
  bool next() {
    if (!ok_) return false;
    number_ = 0;
    bytes_ = {};
    try {
      if (!rest_.next()) return false;
      field_ = rest_.tag();
      // Before it is read: protozero takes it for our mistake when a type is not the one expected.
      switch (rest_.wire_type()) {
        case protozero::pbf_wire_type::varint:
          number_ = rest_.get_uint64();
          break;
        case protozero::pbf_wire_type::length_delimited: {
          const protozero::data_view view = rest_.get_view();
          bytes_ = {view.data(), view.size()};
          break;
        }
        default:
          rest_.skip();
      }
    } catch (const protozero::exception&) {
      ok_ = false;
    }
    return ok_;
  }
  bool ok() const { return ok_; }
  Field field() const { return field_; }
  std::uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }

 private:
  protozero::pbf_message<Field> rest_;
  bool ok_ = true;
  Field field_{};
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace arcomm::client
