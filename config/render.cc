// The texts made from the table: the sample file, --print-config and the manual page.
#include <sstream>

#include "config/settings.h"
#include "config/settings_table.h"

namespace arcomm {
namespace {

constexpr std::size_t kCommentColumns = 96;

std::string upper_first(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

// The words of `text` as comment lines of at most kCommentColumns.
void write_comment(std::ostream& out, std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string word, line = "#";
  while (words >> word) {
    if (line.size() + 1 + word.size() > kCommentColumns) {
      out << line << '\n';
      line = "#";
    }
    line += ' ' + word;
  }
  out << line << '\n';
}

// roff takes a leading dot or apostrophe for a request and a backslash for an escape.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '"') {
      out += "\\(dq";
    } else {
      out += c;
    }
  }
  if (!out.empty() && (out.front() == '.' || out.front() == '\'')) out.insert(0, "\\&");
  return out;
}

// Calls row(row) for each row, and section(name) before the first row of each.
template <typename OnSection, typename OnRow>
void walk(OnSection on_section, OnRow on_row) {
  std::string_view section;
  for (const SettingRow& row : settings_table()) {
    if (row.section != section) on_section(section = row.section);
    on_row(row);
  }
}

}  // namespace

std::string_view text_of(SettingSource source) {
  switch (source) {
    case SettingSource::Default:
      return "default";
    case SettingSource::File:
      return "file";
    case SettingSource::Environment:
      return "environment";
    case SettingSource::Flag:
      return "flag";
  }
  return "unknown";
}

std::string render_default_toml() {
  const Settings defaults;
  std::ostringstream out;
  write_comment(
      out,
      "arcommd's configuration. Made from the table in config/settings_table.cc; every "
      "setting stands here at its default. Take the # away to change one. Later wins: this "
      "file, the environment (ARCOMM_LOG_LEVEL for [log] level), --set log.level=debug.");
  write_comment(
      out,
      "arcommd --check-config tells whether a file is right, arcommd --print-config what is "
      "in force and why. systemctl reload arcommd takes up the settings marked (reload).");
  walk([&](std::string_view section) { out << "\n[" << section << "]\n"; },
       [&](const SettingRow& row) {
         out << '\n';
         write_comment(out, row.doc);
         write_comment(out,
                       upper_first(allowed_text(row)) + "." + (row.reloadable ? " (reload)" : ""));
         out << '#' << row.key << " = " << setting_toml(row, defaults) << '\n';
       });
  return out.str();
}

std::string render_values(const Loaded& loaded) {
  std::ostringstream out;
  out << "# " << (loaded.path.empty() ? "no file was read" : "file: " + loaded.path) << '\n';
  walk([&](std::string_view section) { out << "\n[" << section << "]\n"; },
       [&](const SettingRow& row) {
         const auto index = static_cast<std::size_t>(&row - settings_table().data());
         std::string line = std::string(row.key) + " = " + setting_toml(row, loaded.settings);
         if (line.size() < 40) line.resize(40, ' ');
         out << line << "  # " << text_of(loaded.sources.at(index)) << '\n';
       });
  return out.str();
}

std::string render_manual() {
  const Settings defaults;
  std::ostringstream out;
  out << ".\\\" Made from the table in config/settings_table.cc.\n"
         ".TH ARCOMMD.TOML 5 \"\" arcommd \"File formats\"\n"
         ".SH NAME\narcommd.toml \\- configuration of arcommd\n"
         ".SH SYNOPSIS\n.I /etc/arcommd/arcommd.toml\n"
         ".SH DESCRIPTION\n"
         "A TOML file. A setting that is not in it has its default; a name that no setting has is "
         "an "
         "error.\nLater wins: default, file, environment variable, flag\n"
         "(\\fB\\-\\-set\\fR \\fIsection.key\\fR=\\fIvalue\\fR).\n"
         "Sizes and times may be written as a text with a unit: \\(dq64MiB\\(dq, \\(dq30s\\(dq.\n"
         "A wrong file on reload changes nothing; the log names file, line, column and key.\n"
         ".SH SETTINGS\n";
  walk([&](std::string_view section) { out << ".SS [" << roff(section) << "]\n"; },
       [&](const SettingRow& row) {
         out << ".TP\n.BR " << roff(row.key) << " \" = \\fI" << roff(setting_toml(row, defaults))
             << "\\fR\"\n"
             << roff(row.doc) << "\n.br\n"
             << roff(upper_first(allowed_text(row)) + ".") << ' '
             << (row.reloadable ? "A reload takes it up." : "Takes a restart.")
             << "\n.br\nVariable: " << roff(row.variable()) << '\n';
       });
  out << ".SH ENVIRONMENT\n.TP\n.B ARCOMM_CONFIG\nThe file to read, where "
         "\\fB\\-\\-config\\fR names none.\n"
         ".TP\n.B ARCOMM_NO_RESIDENT\n"
         "Neither empty nor 0: turns gpu.resident off, whatever file, variable or flag say.\n"
         ".SH SEE ALSO\n.BR arcommd (8),\n.BR arctl (1)\n";
  return out.str();
}

}  // namespace arcomm
