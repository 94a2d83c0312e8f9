#include "client/arctl/view/table.h"

#include <algorithm>
#include <numeric>

namespace arcomm::arctl {
namespace {

const char* escape_of(Colour colour) {
  switch (colour) {
    case Colour::Plain:
      return "";
    case Colour::Bold:
      return "\x1b[1m";
    case Colour::Dim:
      return "\x1b[2m";
    case Colour::Red:
      return "\x1b[31m";
    case Colour::Green:
      return "\x1b[32m";
    case Colour::Yellow:
      return "\x1b[33m";
  }
  return "";
}

// Code points, which is what a terminal gives one cell each in all text of ours.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string painted(std::string_view text, Colour colour, bool enabled) {
  if (!enabled || colour == Colour::Plain) return std::string(text);
  return escape_of(colour) + std::string(text) + "\x1b[0m";
}

std::string printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return clean;
}

void Table::add(std::vector<Cell> cells) {
  cells.resize(columns_.size(), Cell(""));
  for (Cell& cell : cells) cell.text = printable(cell.text);
  rows_.push_back(std::move(cells));
}

std::string Table::text(bool colour) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row[i].text));
  }
  std::string out;
  const auto line = [&](const auto& cell_at) {
    std::string pending;  // blanks that are only written when something follows
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Cell& cell = cell_at(i);
      const std::string fill(widths[i] - width_of(cell.text), ' ');
      if (columns_[i].align == Align::Right) pending += fill;
      if (!cell.text.empty()) {
        out += pending;
        out += painted(cell.text, cell.colour, colour);
        pending.clear();
      }
      if (columns_[i].align == Align::Left) pending += fill;
      pending += "  ";
    }
    out += '\n';
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title, Colour::Bold);
  const auto titles_at = [&titles](std::size_t i) -> const Cell& { return titles[i]; };
  line(titles_at);
  for (const auto& row : rows_) {
    line([&row](std::size_t i) -> const Cell& { return row[i]; });
  }
  return out;
}

}  // namespace arcomm::arctl
