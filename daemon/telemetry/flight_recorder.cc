#include "daemon/telemetry/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <type_traits>
#include <utility>

namespace arcomm {
namespace {

constexpr std::uint64_t kMagic = 0x3552464D4D4F4352;  // "RCOMMFR5"
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kMinRecords = 16;
constexpr std::size_t kMaxRecords = 1 << 20;

std::uint64_t now_ns(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

// Behind it, from kHeaderBytes on: the operations' slots, then those of steps between nodes.
struct FlightRecorder::Header {
  std::uint64_t magic = kMagic;
  std::uint64_t slot_bytes = sizeof(RecordSlot);
  std::uint64_t slots = 0, network_slots = 0;
  std::atomic<std::uint64_t> written{0}, network_written{0};

  static Header& in(std::byte* base) { return *reinterpret_cast<Header*>(base); }
  // Is it one, and does all that it says lie in so many bytes?
  bool fits(std::size_t bytes) const {
    const auto is_count = [](std::uint64_t count) {
      return std::has_single_bit(count) && count <= kMaxRecords;
    };
    return magic == kMagic && slot_bytes == sizeof(RecordSlot) && is_count(slots) &&
           (network_slots == 0 || is_count(network_slots)) &&
           kHeaderBytes + (slots + network_slots) * sizeof(RecordSlot) <= bytes;
  }
};

RecordRing<FlightRecord> FlightRecorder::operations_in(std::byte* base) {
  Header& header = Header::in(base);
  return {reinterpret_cast<RecordSlot*>(base + kHeaderBytes), header.slots, &header.written};
}

RecordRing<NetworkSteps> FlightRecorder::network_in(std::byte* base) {
  Header& header = Header::in(base);
  return {reinterpret_cast<RecordSlot*>(base + kHeaderBytes) + header.slots, header.network_slots,
          &header.network_written};
}

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::create(std::size_t records,
                                                               std::size_t network_records) {
  const auto slots_for = [](std::size_t wanted) {
    return std::bit_ceil(std::clamp(wanted, kMinRecords, kMaxRecords));
  };
  const std::size_t slots = slots_for(records);
  const std::size_t network_slots = network_records == 0 ? 0 : slots_for(network_records);
  const std::size_t bytes = kHeaderBytes + (slots + network_slots) * sizeof(RecordSlot);
  UniqueFd memory(::memfd_create("arcomm-flight-recorder", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "flight recorder: cannot get ",
                 bytes, " bytes of shared memory: ", std::strerror(errno));
  }
  // Touched now, so that no write() meets a page fault that memory cannot serve.
  Result<SharedMapping> mapping = SharedMapping::map(
      memory.get(), {.length_bytes = bytes, .is_prefaulted = true, .what = "the flight recorder"});
  if (!mapping) return std::move(mapping).error();
  static_assert(sizeof(Header) <= kHeaderBytes);
  Header* header = new (mapping->data()) Header;
  header->slots = slots;
  header->network_slots = network_slots;
  std::unique_ptr<FlightRecorder> recorder(
      new FlightRecorder(std::move(memory), std::move(*mapping)));
  recorder->operations_.create();
  recorder->network_.create();
  return recorder;
}

FlightRecorder::FlightRecorder(UniqueFd memory, SharedMapping mapping)
    : memory_(std::move(memory)),
      mapping_(std::move(mapping)),
      operations_(operations_in(mapping_.data())),
      network_(network_in(mapping_.data())) {}

Result<FlightLog> FlightRecorder::read(int memfd) {
  const auto unknown = [](const char* what) {
    return error(ErrorCode::FailedPrecondition, Reason::Version,
                 "not a flight recorder of this version: ", what);
  };
  struct stat file {};
  const int seals = ::fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(memfd, &file) != 0)
    return unknown("no sealed memory");
  const auto bytes = static_cast<std::size_t>(file.st_size);
  if (bytes < kHeaderBytes) return unknown("too short");
  const Result<SharedMapping> mapping =
      SharedMapping::map(memfd, {.length_bytes = bytes,
                                 .access = SharedMapping::Access::ReadOnly,
                                 .what = "a flight recorder"});
  if (!mapping) return unknown(mapping.error().message.c_str());
  std::byte* const base = mapping->data();
  if (!Header::in(base).fits(bytes)) return unknown("another layout");
  FlightLog log{.operations = operations_in(base).collect(0),
                .network = network_in(base).collect(0)};
  std::erase_if(log.operations, [](const FlightRecord& record) {
    return static_cast<unsigned>(record.dtype) >= kDTypes ||
           static_cast<unsigned>(record.op) >= kReduceOps ||
           static_cast<unsigned>(record.codec) >= kCodecs ||
           static_cast<unsigned>(record.codec_origin) >
               static_cast<unsigned>(CodecOrigin::ErrorClass);
  });
  return log;
}

std::string to_json(const NetworkSteps& steps) {
  std::array<char, 384> text{};
  std::snprintf(text.data(), text.size(),
                "{\"nodes\":%" PRIu32 ",\"algorithm\":%u,\"posted_ns\":%" PRIu64
                ",\"sent_ns\":%" PRIu64 ",\"arrived_ns\":%" PRIu64 ",\"credited_ns\":%" PRIu64
                ",\"sent_bytes\":%" PRIu64 ",\"received_bytes\":%" PRIu64 "}",
                steps.nodes, unsigned{steps.algorithm}, steps.posted_ns, steps.sent_ns,
                steps.arrived_ns, steps.credited_ns, steps.sent_bytes, steps.received_bytes);
  return text.data();
}

std::string to_json(const FlightRecord& record, const NetworkSteps* network) {
  std::array<char, 768> line{};
  const auto collective = text_of(record.collective);
  const auto dtype = text_of(record.dtype);
  const auto op = text_of(record.op);
  const auto codec = text_of(record.codec);
  const auto code = name_of(record.code);
  const auto reason = name_of(record.reason);
  const bool is_open = record.done_ns == 0;
  std::array<char, 17> comm{};
  for (std::size_t i = 0; i < 8;
       ++i) {  // the bytes in their order, as the unique id is printed elsewhere
    const auto byte = static_cast<unsigned>((record.unique_id_prefix >> (8 * i)) & 0xff);
    std::snprintf(&comm[2 * i], 3, "%02x", byte);
  }
  std::snprintf(
      line.data(), line.size(),
      "{\"number\":%" PRIu64 ",\"comm\":\"%s\",\"epoch\":%" PRIu64 ",\"seq\":%" PRIu64
      ",\"rank\":%d,\"pid\":%d,\"collective\":\"%.*s\",\"op\":\"%.*s\",\"dtype\":\"%.*s\""
      ",\"codec\":\"%.*s%s\""
      ",\"send_count\":%" PRIu64 ",\"recv_count\":%" PRIu64
      ",\"algorithm\":%u,\"state\":\"%s\",\"code\":\"%.*s\",\"reason\":\"%.*s\""
      ",\"culprit\":%d,\"submitted_ns\":%" PRIu64 ",\"admitted_ns\":%" PRIu64
      ",\"matched_ns\":%" PRIu64 ",\"agreed_ns\":%" PRIu64 ",\"launched_ns\":%" PRIu64
      ",\"done_ns\":%" PRIu64,
      record.number, comm.data(), record.epoch, record.seq, record.rank, record.pid,
      static_cast<int>(collective.size()), collective.data(), static_cast<int>(op.size()),
      op.data(), static_cast<int>(dtype.size()), dtype.data(), static_cast<int>(codec.size()),
      codec.data(), record.codec_origin == CodecOrigin::ErrorClass ? " of an error class" : "",
      record.send_count, record.recv_count, unsigned{record.algorithm}, is_open ? "open" : "done",
      static_cast<int>(code.size()), code.data(), static_cast<int>(reason.size()), reason.data(),
      record.culprit, record.submitted_ns, record.admitted_ns, record.matched_ns, record.agreed_ns,
      record.launched_ns, record.done_ns);
  std::string text = line.data();
  if (network != nullptr) text += ",\"network\":" + to_json(*network);
  return text + "}";
}

void FlightRecorder::dump(std::ostream& out) const {
  out << "{\"flight_recorder\":1,\"pid\":" << ::getpid() << ",\"capacity\":" << capacity()
      << ",\"written\":" << written() << ",\"clock_monotonic_ns\":" << now_ns(CLOCK_MONOTONIC)
      << ",\"clock_realtime_ns\":" << now_ns(CLOCK_REALTIME) << "}\n";
  const std::vector<NetworkSteps> network = network_steps();
  const NetworkStepsIndex index(network);
  for (const FlightRecord& record : snapshot()) out << to_json(record, index.find(record)) << '\n';
}

Result<std::string> FlightRecorder::dump_to(const std::string& directory) const {
  static std::atomic<unsigned> dumps{0};
  const std::string path = directory + "/flight-" + std::to_string(::getpid()) + "-" +
                           std::to_string(dumps.fetch_add(1, std::memory_order_relaxed) + 1) +
                           ".jsonl";
  std::ofstream file(path, std::ios::trunc);
  dump(file);
  file.close();
  if (!file) {
    const int failure = errno;
    ::unlink(path.c_str());  // half a dump would mislead
    return error(ErrorCode::Unavailable, Reason::None, "cannot write the flight recorder to ", path,
                 ": ", std::strerror(failure), "; check state_dir");
  }
  return path;
}

}  // namespace arcomm
