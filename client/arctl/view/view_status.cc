#include <algorithm>
#include <cstdio>

#include "client/arctl/command_line/units.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"
#include "proto/types.h"

namespace arcomm::arctl {
namespace {

Colour colour_of_state(std::string_view state) {
  if (state == "ready" || state == "busy" || state == "polling" || state == "sleeping") {
    return Colour::Green;
  }
  return state.starts_with("degraded") || state == "draining" ? Colour::Yellow : Colour::Red;
}

std::string counted(std::uint64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " ";
  text += noun;
  if (count != 1) text += 's';
  return text;
}

std::string turn_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms", std::clamp(seconds, 0.0, 1e6) * 1000);
  return text;
}

std::string percent(double fraction) {
  return fixed(fraction * 100, fraction < 0.0995 ? 1 : 0) + " %";
}

// "12", "64.0 MiB"; "-" for a limit that there is not.
std::string amount_text(const v1::LimitStatus& limit, std::uint64_t amount) {
  return limit.in_bytes() ? human_bytes(amount) : std::to_string(amount);
}
std::string bound_text(const v1::LimitStatus& limit, std::uint64_t bound) {
  return bound == 0 ? "-" : amount_text(limit, bound);
}

// Yellow from where a fair share is less than a user's own quota.
std::string limits_text(const v1::StatusReply& reply, bool colour) {
  Table table({{"LIMIT"},
               {"USED", Align::Right},
               {"OF NODE", Align::Right},
               {"OF UID", Align::Right},
               {"USERS", Align::Right},
               {"MOST", Align::Right},
               {"BY UID", Align::Right}});
  for (const v1::LimitStatus& limit : reply.limits()) {
    const bool is_short = limit.of_node() != 0 && limit.used() > limit.of_node() / 2;
    table.add({limit.name(),
               {amount_text(limit, limit.used()), is_short ? Colour::Yellow : Colour::Plain},
               bound_text(limit, limit.of_node()),
               bound_text(limit, limit.of_uid()),
               std::to_string(limit.users()),
               amount_text(limit, limit.most()),
               limit.most() == 0 ? "-" : std::to_string(limit.most_uid())});
  }
  return table.text(colour);
}

Json limits_json(const v1::StatusReply& reply) {
  Json limits = Json::array();
  const auto bound = [](std::uint64_t value) { return value == 0 ? Json() : Json(value); };
  for (const v1::LimitStatus& limit : reply.limits()) {
    limits.push_back({{"name", limit.name()},
                      {"used", limit.used()},
                      {"of_node", bound(limit.of_node())},
                      {"of_uid", bound(limit.of_uid())},
                      {"users", limit.users()},
                      {"most", limit.most()},
                      {"most_uid", limit.most() == 0 ? Json() : Json(limit.most_uid())}});
  }
  return limits;
}

}  // namespace

std::string id_text(std::uint64_t bits) {
  const auto id = SessionId::from_bits(bits);
  return std::to_string(id.index) + "." + std::to_string(id.generation);
}

bool is_ready(const v1::StatusReply& reply) {
  return reply.state() == "ready";
}

std::string status_text(const v1::StatusReply& reply, bool with_settings, bool colour) {
  std::string out =
      painted("arcommd " + version_text(reply.version()), Colour::Bold, colour) + "  " +
      painted(printable(reply.state()), colour_of_state(reply.state()), colour) + "  pid " +
      std::to_string(reply.pid()) + "  up " + human_duration(reply.uptime_ms()) + "  backend " +
      printable(reply.backend()) + "\n";
  const std::string file = reply.config_file().empty() ? "built-in defaults" : reply.config_file();
  out += "  config   " + printable(file) + ", generation " +
         std::to_string(reply.config_generation()) + "\n";
  out += "  tuning   " + printable(reply.tuning().empty() ? "none" : reply.tuning()) + "\n";
  out += "  serving  " + counted(reply.sessions(), "session") + ", " +
         counted(reply.communicators(), "communicator") + ", " +
         human_bytes(reply.registered_bytes()) + " registered\n";

  Table workers({{"DEVICE"},
                 {"STATE"},
                 {"BUSY", Align::Right},
                 {"SLOWEST", Align::Right},
                 {"SESSIONS", Align::Right},
                 {"DONE", Align::Right},
                 {"FAILED", Align::Right},
                 {"PENDING", Align::Right},
                 {"REDUCED", Align::Right}});
  for (const v1::WorkerStatus& worker : reply.workers()) {
    workers.add({worker.device(),
                 {worker.state(), colour_of_state(worker.state())},
                 percent(worker.busy_fraction()),
                 turn_text(worker.slowest_turn_seconds()),
                 std::to_string(worker.sessions()),
                 human_count(worker.operations_done()),
                 {human_count(worker.operations_failed()),
                  worker.operations_failed() != 0 ? Colour::Yellow : Colour::Plain},
                 std::to_string(worker.operations_pending()),
                 human_bytes(worker.bytes_reduced())});
  }
  if (!workers.empty()) out += "\n" + workers.text(colour);

  if (reply.limits_size() != 0) out += "\n" + limits_text(reply, colour);

  if (reply.warnings_size() != 0) out += "\n";
  for (const std::string& warning : reply.warnings()) {
    out += painted("warning: " + printable(warning), Colour::Yellow, colour) + "\n";
  }
  if (with_settings) {
    Table settings({{"SETTING"}, {"VALUE"}, {"FROM"}});
    for (const v1::Setting& setting : reply.settings()) {
      settings.add(
          {setting.name(),
           setting.value(),
           {setting.source(), setting.source() == "default" ? Colour::Dim : Colour::Plain}});
    }
    out += "\n" + settings.text(colour);
  }
  return out;
}

Json status_json(const v1::StatusReply& reply) {
  Json workers = Json::array(), settings = Json::array(), warnings = Json::array();
  for (const v1::WorkerStatus& worker : reply.workers()) {
    workers.push_back({{"device", worker.device()},
                       {"state", worker.state()},
                       {"sessions", worker.sessions()},
                       {"operations_done", worker.operations_done()},
                       {"operations_failed", worker.operations_failed()},
                       {"operations_pending", worker.operations_pending()},
                       {"bytes_reduced", worker.bytes_reduced()},
                       {"busy_fraction", json_number(worker.busy_fraction())},
                       {"slowest_turn_seconds", json_number(worker.slowest_turn_seconds())}});
  }
  for (const v1::Setting& setting : reply.settings()) {
    settings.push_back(
        {{"name", setting.name()}, {"value", setting.value()}, {"source", setting.source()}});
  }
  for (const std::string& warning : reply.warnings()) warnings.push_back(warning);
  return {{"version", version_text(reply.version())},
          {"state", reply.state()},
          {"ready", is_ready(reply)},
          {"pid", reply.pid()},
          {"uptime_ms", reply.uptime_ms()},
          {"backend", reply.backend()},
          {"config_file", reply.config_file()},
          {"config_generation", reply.config_generation()},
          {"tuning", reply.tuning()},
          {"sessions", reply.sessions()},
          {"communicators", reply.communicators()},
          {"registered_bytes", reply.registered_bytes()},
          {"workers", std::move(workers)},
          {"limits", limits_json(reply)},
          {"settings", std::move(settings)},
          {"warnings", std::move(warnings)}};
}

std::string sessions_text(const v1::SessionsReply& reply, bool colour) {
  if (reply.sessions_size() == 0) return "no client is attached\n";
  Table table({{"SESSION"},
               {"PID", Align::Right},
               {"UID", Align::Right},
               {"PROCESS"},
               {"DEVICE"},
               {"STATE"},
               {"COMMS", Align::Right},
               {"BUFFERS", Align::Right},
               {"MEMORY", Align::Right},
               {"IN FLIGHT", Align::Right},
               {"DONE", Align::Right},
               {"FAILED", Align::Right},
               {"REJECTED", Align::Right},
               {"AGE", Align::Right}});
  for (const v1::SessionStatus& session : reply.sessions()) {
    const auto bad = [](std::uint64_t count) {
      return count != 0 ? Colour::Yellow : Colour::Plain;
    };
    table.add({id_text(session.session()),
               session.pid() == 0 ? "?" : std::to_string(session.pid()),
               std::to_string(session.uid()),
               session.process_name(),
               session.device(),
               {session.state(), session.state() == "open" ? Colour::Green : Colour::Yellow},
               std::to_string(session.communicators()),
               std::to_string(session.buffers()),
               human_bytes(session.registered_bytes()),
               std::to_string(session.in_flight()),
               human_count(session.completed()),
               {human_count(session.failed()), bad(session.failed())},
               {human_count(session.rejected()), bad(session.rejected())},
               human_duration(session.age_ms())});
  }
  return table.text(colour);
}

Json sessions_json(const v1::SessionsReply& reply) {
  Json sessions = Json::array();
  for (const v1::SessionStatus& session : reply.sessions()) {
    sessions.push_back({{"session", id_text(session.session())},
                        {"pid", session.pid()},
                        {"uid", session.uid()},
                        {"gid", session.gid()},
                        {"process_name", session.process_name()},
                        {"device", session.device()},
                        {"state", session.state()},
                        {"communicators", session.communicators()},
                        {"buffers", session.buffers()},
                        {"registered_bytes", session.registered_bytes()},
                        {"in_flight", session.in_flight()},
                        {"submitted", session.submitted()},
                        {"completed", session.completed()},
                        {"failed", session.failed()},
                        {"rejected", session.rejected()},
                        {"age_ms", session.age_ms()}});
  }
  return {{"sessions", std::move(sessions)}};
}

}  // namespace arcomm::arctl
