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

constexpr std::uint64_t kMagic = 0x3352464D4D4F4352;  // "RCOMMFR3"
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kMinRecords = 16;
constexpr std::size_t kMaxRecords = 1 << 20;
constexpr std::size_t kRecordWords = 15;  // a slot is two cache lines
static_assert(std::is_trivially_copyable_v<FlightRecord>);
static_assert(sizeof(FlightRecord) <= kRecordWords * sizeof(std::uint64_t));

struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;
  std::atomic<std::uint64_t> written{0};
};
static_assert(sizeof(Header) <= kHeaderBytes);

Header* header_of(void* base) {
  return static_cast<Header*>(base);
}

std::uint64_t now_ns(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

// A seqlock without fences: version is odd while the words change. A word's release store comes
// after the odd version; a reader whose acquire load sees such a word therefore sees the odd
// version too, and drops the record.
struct alignas(128) FlightRecorder::Slot {
  std::atomic<std::uint64_t> version{0};
  std::array<std::atomic<std::uint64_t>, kRecordWords> words{};
};

namespace {

FlightRecorder::Slot* slots_of(void* base) {
  return reinterpret_cast<FlightRecorder::Slot*>(static_cast<std::byte*>(base) + kHeaderBytes);
}

bool read_slot(const FlightRecorder::Slot& slot, FlightRecord& record) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = slot.version.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    std::array<std::uint64_t, kRecordWords> words;
    for (std::size_t w = 0; w < kRecordWords; ++w)
      words[w] = slot.words[w].load(std::memory_order_acquire);  // pairs with write()'s release
    if (slot.version.load(std::memory_order_relaxed) != before) continue;
    std::memcpy(static_cast<void*>(&record), words.data(), sizeof(record));
    return true;
  }
  return false;
}

// The newest `limit` of the ring that are complete, oldest first. 0: all.
std::vector<FlightRecord> collect(void* base, std::size_t slots, std::size_t limit) {
  const std::uint64_t last = header_of(base)->written.load(std::memory_order_acquire);
  const std::uint64_t kept = std::min<std::uint64_t>(last, slots);
  const std::uint64_t wanted = limit == 0 ? kept : std::min<std::uint64_t>(kept, limit);
  std::vector<FlightRecord> records;
  records.reserve(wanted);
  for (std::uint64_t number = last - wanted + 1; number <= last; ++number) {
    FlightRecord record;
    // A slot that holds another number was overtaken by the writer since.
    if (read_slot(slots_of(base)[number & (slots - 1)], record) && record.number == number)
      records.push_back(record);
  }
  return records;
}

}  // namespace

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::create(std::size_t records) {
  const std::size_t count = std::bit_ceil(std::clamp(records, kMinRecords, kMaxRecords));
  const std::size_t bytes = kHeaderBytes + count * sizeof(Slot);
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
  std::byte* const base = mapping->data();
  Header* header = new (base) Header;
  header->slot_bytes = sizeof(Slot);
  header->slots = count;
  for (std::size_t i = 0; i < count; ++i) new (slots_of(base) + i) Slot;
  return std::unique_ptr<FlightRecorder>(
      new FlightRecorder(std::move(memory), std::move(*mapping), count));
}

FlightRecorder::FlightRecorder(UniqueFd memory, SharedMapping mapping, std::size_t records)
    : memory_(std::move(memory)), mapping_(std::move(mapping)), records_(records) {}

void FlightRecorder::write(FlightRecord& record) {
  if (record.number == 0) {
    record.number = next_++;
  } else if (record.number + records_ < next_) {
    return;  // the ring has moved past it
  }
  Slot& slot = slots_of(mapping_.data())[record.number & (records_ - 1)];
  std::array<std::uint64_t, kRecordWords> words{};
  std::memcpy(words.data(), &record, sizeof(record));
  const std::uint64_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < kRecordWords; ++i)
    slot.words[i].store(words[i], std::memory_order_release);  // pairs with read_slot()'s acquire
  slot.version.store(version + 2, std::memory_order_release);
  header_of(mapping_.data())->written.store(next_ - 1, std::memory_order_release);
}

std::uint64_t FlightRecorder::written() const {
  return header_of(mapping_.data())->written.load(std::memory_order_acquire);
}

std::vector<FlightRecord> FlightRecorder::snapshot(std::size_t limit) const {
  return collect(mapping_.data(), records_, limit);
}

Result<std::vector<FlightRecord>> FlightRecorder::read(int memfd) {
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
  const Header& header = *header_of(base);
  const std::uint64_t slots = header.slots;
  const bool fits = header.magic == kMagic && header.slot_bytes == sizeof(Slot) &&
                    std::has_single_bit(slots) && slots <= kMaxRecords &&
                    kHeaderBytes + slots * sizeof(Slot) <= bytes;
  Result<std::vector<FlightRecord>> records = unknown("another layout");
  if (fits) {
    records = collect(base, slots, 0);
    std::erase_if(*records, [](const FlightRecord& record) {
      return static_cast<unsigned>(record.dtype) >= kDTypes ||
             static_cast<unsigned>(record.op) >= kReduceOps;
    });
  }
  return records;
}

std::string to_json(const FlightRecord& record) {
  std::array<char, 768> line{};
  const auto collective = text_of(record.collective);
  const auto dtype = text_of(record.dtype);
  const auto op = text_of(record.op);
  const auto code = name_of(record.code);
  const auto reason = name_of(record.reason);
  const bool is_open = record.done_ns == 0;
  std::array<char, 17> comm{};
  for (std::size_t i = 0; i < 8;
       ++i) {  // the bytes in their order, as the unique id is printed elsewhere
    const auto byte = static_cast<unsigned>((record.unique_id_prefix >> (8 * i)) & 0xff);
    std::snprintf(&comm[2 * i], 3, "%02x", byte);
  }
  std::snprintf(line.data(), line.size(),
                "{\"number\":%" PRIu64 ",\"comm\":\"%s\",\"epoch\":%" PRIu64 ",\"seq\":%" PRIu64
                ",\"rank\":%d,\"pid\":%d,\"collective\":\"%.*s\",\"op\":\"%.*s\",\"dtype\":\"%.*s\""
                ",\"send_count\":%" PRIu64 ",\"recv_count\":%" PRIu64
                ",\"algorithm\":%u,\"state\":\"%s\",\"code\":\"%.*s\",\"reason\":\"%.*s\""
                ",\"culprit\":%d,\"submitted_ns\":%" PRIu64 ",\"admitted_ns\":%" PRIu64
                ",\"matched_ns\":%" PRIu64 ",\"agreed_ns\":%" PRIu64 ",\"launched_ns\":%" PRIu64
                ",\"done_ns\":%" PRIu64 "}",
                record.number, comm.data(), record.epoch, record.seq, record.rank, record.pid,
                static_cast<int>(collective.size()), collective.data(), static_cast<int>(op.size()),
                op.data(), static_cast<int>(dtype.size()), dtype.data(), record.send_count,
                record.recv_count, unsigned{record.algorithm}, is_open ? "open" : "done",
                static_cast<int>(code.size()), code.data(), static_cast<int>(reason.size()),
                reason.data(), record.culprit, record.submitted_ns, record.admitted_ns,
                record.matched_ns, record.agreed_ns, record.launched_ns, record.done_ns);
  return line.data();
}

void FlightRecorder::dump(std::ostream& out) const {
  out << "{\"flight_recorder\":1,\"pid\":" << ::getpid() << ",\"capacity\":" << records_
      << ",\"written\":" << written() << ",\"clock_monotonic_ns\":" << now_ns(CLOCK_MONOTONIC)
      << ",\"clock_realtime_ns\":" << now_ns(CLOCK_REALTIME) << "}\n";
  for (const FlightRecord& record : snapshot()) out << to_json(record) << '\n';
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
