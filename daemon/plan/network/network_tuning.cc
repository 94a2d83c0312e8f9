#include "daemon/plan/network/network_tuning.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "daemon/plan/network_policy.h"
#include "daemon/plan/tuning/tuning_file.h"
#include "daemon/plan/tuning/tuning_reader.h"

namespace arcomm {
namespace {

constexpr std::int64_t kNetworkFormat = 1;
constexpr std::size_t kMostLinks = 4096;
constexpr double kLongestLatencyUs = 10e6;
constexpr double kUsPerSecond = 1e6;
constexpr double kMib = 1 << 20;

double us_of_a_mib(const LinkFigures& link) {
  return link.latency_us + kMib / static_cast<double>(link.bytes_per_second) * kUsPerSecond;
}

class NetworkReader : private TuningReader {
 public:
  NetworkReader(std::string_view name, const NetworkSetup& setup)
      : TuningReader(name), setup_(setup) {}

  Result<NetworkTuning> read(const toml::table& root) {
    NetworkTuning tuning;
    tuning.source = std::string(name());
    ARC_RETURN_IF_ERROR(
        check_keys(root, "the file", {"format", "node", "streams", "interfaces", "link"}));
    if (root["format"].value<std::int64_t>() != kNetworkFormat) {
      return wrong(root, "format must be ", kNetworkFormat,
                   ": the file is of another version; run `arctl tune --network` anew");
    }
    tuning.node = root["node"].value_or(std::string());
    if (tuning.node != setup_.node)
      return stale(root, "node", tuning.node, "and this node is " + setup_.node);
    const std::int64_t streams = root["streams"].value_or(std::int64_t{-1});
    if (streams != static_cast<std::int64_t>(setup_.streams))
      return stale(root, "streams", std::to_string(streams),
                   "and net.streams is " + std::to_string(setup_.streams));
    tuning.streams = setup_.streams;
    tuning.interfaces = root["interfaces"].value_or(std::string());
    if (tuning.interfaces != setup_.interfaces)
      return stale(root, "interfaces", tuning.interfaces,
                   "and net.interfaces is \"" + setup_.interfaces + "\"");
    ARC_RETURN_IF_ERROR(read_links(root, tuning));
    return tuning;
  }

 private:
  Status read_links(const toml::table& root, NetworkTuning& tuning) const {
    const toml::node* node = root.get("link");
    if (node == nullptr) return {};
    if (!node->is_array()) return wrong(*node, "link must be a list: [[link]]");
    const toml::array& list = *node->as_array();
    if (list.size() > kMostLinks) return wrong(list, "more than ", kMostLinks, " links");
    for (const toml::node& entry : list) {
      if (!entry.is_table()) return wrong(entry, "a link must be a table: [[link]]");
      LinkFigures link;
      ARC_RETURN_IF_ERROR(read_link(*entry.as_table(), link));
      if (tuning.find(link.address) != nullptr)
        return wrong(entry, "peer ", link.address, " is there twice");
      tuning.put(std::move(link));
    }
    return {};
  }

  Status read_link(const toml::table& fields, LinkFigures& link) const {
    ARC_RETURN_IF_ERROR(check_keys(
        fields, "a link", {"peer", "name", "latency_us", "bytes_per_second", "without_copies"}));
    link.address = fields["peer"].value_or(std::string());
    if (std::find(setup_.peers.begin(), setup_.peers.end(), link.address) == setup_.peers.end()) {
      const toml::node* const peer = fields.get("peer");
      return wrong(peer == nullptr ? static_cast<const toml::node&>(fields) : *peer, "peer \"",
                   link.address,
                   "\" is not in net.peers: what was measured with other peers says nothing; run "
                   "`arctl tune --network` anew");
    }
    link.name = fields["name"].value_or(std::string());
    link.latency_us = fields["latency_us"].value<double>().value_or(0);
    if (!std::isfinite(link.latency_us) || link.latency_us <= 0 ||
        link.latency_us > kLongestLatencyUs)
      return wrong(fields, "latency_us must be above 0 and at most ", kLongestLatencyUs);
    const std::int64_t speed = fields["bytes_per_second"].value_or(std::int64_t{0});
    if (speed <= 0) return wrong(fields, "bytes_per_second must be a whole number above 0");
    link.bytes_per_second = static_cast<std::uint64_t>(speed);
    const std::optional<bool> without_copies = fields["without_copies"].value_exact<bool>();
    if (!without_copies) return wrong(fields, "without_copies must be true or false");
    link.without_copies = *without_copies;
    return {};
  }

  Error stale(const toml::table& root, const char* key, const std::string& was,
              const std::string& is) const {
    const toml::node* const node = root.get(key);
    return wrong(node == nullptr ? static_cast<const toml::node&>(root) : *node, key, " = \"", was,
                 "\" when this was measured, ", is, ": run `arctl tune --network` anew");
  }

  const NetworkSetup& setup_;
};

}  // namespace

std::uint64_t LinkFigures::step_bytes() const {
  const double bytes = latency_us / kUsPerSecond * static_cast<double>(bytes_per_second);
  return std::clamp(
      static_cast<std::uint64_t>(std::min(bytes, static_cast<double>(kMostStepBytes))),
      kLeastStepBytes, kMostStepBytes);
}

const LinkFigures* NetworkTuning::find(std::string_view address) const {
  const auto found = std::find_if(links.begin(), links.end(), [address](const LinkFigures& link) {
    return link.address == address;
  });
  return found == links.end() ? nullptr : &*found;
}

const LinkFigures* NetworkTuning::slowest() const {
  const auto found = std::max_element(
      links.begin(), links.end(),
      [](const LinkFigures& a, const LinkFigures& b) { return us_of_a_mib(a) < us_of_a_mib(b); });
  return found == links.end() ? nullptr : &*found;
}

std::uint64_t NetworkTuning::step_bytes() const {
  const LinkFigures* const link = slowest();
  return link == nullptr ? kUsualStepBytes : link->step_bytes();
}

std::uint64_t NetworkTuning::bytes_per_second() const {
  const LinkFigures* const link = slowest();
  return link == nullptr ? 0 : link->bytes_per_second;
}

void NetworkTuning::put(LinkFigures figures) {
  const auto at = std::lower_bound(
      links.begin(), links.end(), figures.address,
      [](const LinkFigures& link, const std::string& address) { return link.address < address; });
  if (at != links.end() && at->address == figures.address) {
    *at = std::move(figures);
  } else {
    links.insert(at, std::move(figures));
  }
}

Result<NetworkTuning> parse_network_tuning(std::string_view toml, std::string_view name,
                                           const NetworkSetup& setup) {
  return read_toml(toml, name, NetworkReader(name, setup));
}

Result<NetworkTuning> load_network_tuning(const std::string& path, const NetworkSetup& setup) {
  const Result<std::string> text = read_tuning_file(path);
  if (!text) return text.error();
  return parse_network_tuning(*text, path, setup);
}

std::string print_network_tuning(const NetworkTuning& tuning) {
  std::string text = fmt::format(
      "# What `arctl tune --network` measured: microseconds of a small message to a peer, one way, "
      "and bytes a second\n"
      "# each way while both are used. It holds for this node, with these streams and "
      "interfaces.\n"
      "format = {}\nnode = {}\nstreams = {}\ninterfaces = {}\n",
      kNetworkFormat, quoted(tuning.node), tuning.streams, quoted(tuning.interfaces));
  for (const LinkFigures& link : tuning.links) {
    const bool whole = std::floor(link.latency_us) == link.latency_us;  // TOML tells 3 from 3.0
    text += fmt::format(
        "\n[[link]]\npeer = {}\nname = {}\nlatency_us = {:.17g}{}\nbytes_per_second = {}\n"
        "without_copies = {}\n",
        quoted(link.address), quoted(link.name), link.latency_us, whole ? ".0" : "",
        link.bytes_per_second, link.without_copies);
  }
  return text;
}

}  // namespace arcomm
