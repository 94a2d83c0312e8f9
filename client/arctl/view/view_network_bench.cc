// What a step between nodes costs, piece by piece and all together.
#include "client/arctl/command_line/units.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

// Of the way from a flag of a kernel here to one that a kernel there sees: a flag to the CPU, a
// message, and a flag from the CPU, which is taken to be as fast there as here.
double step_us(const v1::TuneLink& link, const v1::TuneFlag& flag) {
  return flag.p50_us() + link.round_trip_us() / 2;
}

// An operation waits for the last of its GPUs. Null where no flag was measured.
const v1::TuneFlag* slowest_flag(const v1::TuneReply& last) {
  const v1::TuneFlag* slowest = nullptr;
  for (const v1::TuneFlag& flag : last.flags()) {
    if (!flag.why().empty()) continue;
    if (slowest == nullptr || flag.p50_us() > slowest->p50_us()) slowest = &flag;
  }
  return slowest;
}

std::string peer_text(const v1::TuneLink& link) {
  return printable(link.address() + (link.name().empty() ? "" : " " + link.name()));
}

std::string gigabytes_text(std::uint64_t bytes_per_second) {
  constexpr double kGiga = 1e9;
  return fixed(static_cast<double>(bytes_per_second) / kGiga, 2);
}

void add_bulk(const v1::TuneLink& link, const char* part, std::uint64_t sent,
              std::uint64_t received, Table& table) {
  if (sent == 0 && received == 0) return;  // this kernel cannot
  const Cell carried(link.carried_bytes() == 0
                         ? ""
                         : "its workers sent " + human_bytes(link.carried_bytes()) + " meanwhile",
                     Colour::Yellow);
  table.add(
      {part, peer_text(link), "", "", gigabytes_text(sent), gigabytes_text(received), carried});
}

void add_link(const v1::TuneLink& link, Table& table) {
  constexpr const char* kMessage = "message there and back";
  if (!link.why().empty())
    return table.add({kMessage, peer_text(link), "-", "-", "", "", {link.why(), Colour::Red}});
  table.add({kMessage, peer_text(link), fixed(link.round_trip_us(), 2),
             fixed(link.round_trip_p99_us(), 2)});
  add_bulk(link, "bulk, the kernel copying", link.sent_with_copies(), link.received_with_copies(),
           table);
  add_bulk(link, "bulk, without copies", link.sent_without_copies(), link.received_without_copies(),
           table);
}

void add_flag(const v1::TuneFlag& flag, Table& table) {
  constexpr const char* kFlag = "flag to the CPU and back";
  if (!flag.why().empty())
    return table.add({kFlag, flag.gpu(), "-", "-", "", "", {flag.why(), Colour::Red}});
  table.add({kFlag, flag.gpu(), fixed(flag.p50_us(), 2), fixed(flag.p99_us(), 2)});
}

std::string legend(const v1::TuneReply& last, const v1::TuneFlag* slowest) {
  if (last.flags().empty())
    return "\nthis daemon serves no GPU: flags, and the sum of all, are left out\n";
  if (slowest == nullptr) return "\nno flag was measured: the sum of all is left out\n";
  return "\nflag to flag: a kernel's flag to the CPU here, a message one way, and a flag to a "
         "kernel there, which is taken to be as fast as on " +
         printable(slowest->gpu()) + (last.flags_size() > 1 ? ", the slowest here\n" : "\n");
}

Json speed_json(std::uint64_t sent, std::uint64_t received) {
  if (sent == 0 && received == 0) return nullptr;
  return {{"sent_bytes_per_second", sent}, {"received_bytes_per_second", received}};
}

}  // namespace

std::string network_bench_text(const v1::TuneReply& last, bool colour) {
  Table table({{"PART"},
               {"WITH"},
               {"P50 us", Align::Right},
               {"P99 us", Align::Right},
               {"SENT GB/s", Align::Right},
               {"RECEIVED GB/s", Align::Right},
               {""}});
  for (const v1::TuneLink& link : last.links()) add_link(link, table);
  for (const v1::TuneFlag& flag : last.flags()) add_flag(flag, table);
  const v1::TuneFlag* const slowest = slowest_flag(last);
  for (const v1::TuneLink& link : last.links()) {
    if (slowest == nullptr || !link.why().empty()) continue;
    table.add({{"flag to flag, one way", Colour::Bold},
               peer_text(link),
               {fixed(step_us(link, *slowest), 2), Colour::Bold}});
  }
  return table.text(colour) + legend(last, slowest);
}

Json network_bench_json(const v1::TuneReply& last) {
  const v1::TuneFlag* const slowest = slowest_flag(last);
  Json links = Json::array(), flags = Json::array();
  for (const v1::TuneLink& link : last.links()) {
    const bool is_measured = link.why().empty();
    const auto figure = [is_measured](double us) { return is_measured ? json_number(us) : Json(); };
    links.push_back(
        {{"address", link.address()},
         {"name", link.name()},
         {"why", link.why()},
         {"round_trip_p50_us", figure(link.round_trip_us())},
         {"round_trip_p99_us", figure(link.round_trip_p99_us())},
         {"with_copies", speed_json(link.sent_with_copies(), link.received_with_copies())},
         {"without_copies", speed_json(link.sent_without_copies(), link.received_without_copies())},
         {"carried_bytes", link.carried_bytes()},
         {"flag_to_flag_us",
          is_measured && slowest != nullptr ? json_number(step_us(link, *slowest)) : Json()}});
  }
  for (const v1::TuneFlag& flag : last.flags()) {
    const bool is_measured = flag.why().empty();
    flags.push_back({{"gpu", flag.gpu()},
                     {"why", flag.why()},
                     {"p50_us", is_measured ? json_number(flag.p50_us()) : Json()},
                     {"p99_us", is_measured ? json_number(flag.p99_us()) : Json()}});
  }
  return {{"links", std::move(links)},
          {"flags", std::move(flags)},
          {"slowest_gpu", slowest == nullptr ? Json() : Json(slowest->gpu())}};
}

}  // namespace arcomm::arctl
