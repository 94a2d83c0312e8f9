// Inputs whose AllReduce is known without computing it elsewhere: small integers, exact in every
// type, different on every rank and position. Fills and checks; prints the first wrong element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "client/include/arclient.h"

namespace arcomm::support {

std::size_t element_bytes(arcDataType_t dtype);
// "float32" and "sum" to the ABI's numbers; false for another text.
bool parse_dtype(const std::string& text, arcDataType_t* dtype);
bool parse_op(const std::string& text, arcRedOp_t* op);

// `salt` makes repeated operations differ, so that a stale result is seen as wrong.
void fill_pattern(void* data, std::size_t count, arcDataType_t dtype, arcRedOp_t op, int rank,
                  std::uint64_t salt);
// "" or the first difference in words.
std::string check_pattern(const void* data, std::size_t count, arcDataType_t dtype, arcRedOp_t op,
                          int ranks, std::uint64_t salt);
// FNV-1a over the bytes: equal on all ranks, and from run to run.
std::uint64_t hash_bytes(const void* data, std::size_t bytes);

}  // namespace arcomm::support
