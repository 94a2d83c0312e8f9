// Aligned columns for people. Text in, text out: nothing is printed here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace arcomm::arctl {

enum class Colour { Plain, Bold, Dim, Red, Green, Yellow };

// Colour escapes around `text`, or `text` alone when `enabled` is false.
std::string painted(std::string_view text, Colour colour, bool enabled);

enum class Align { Left, Right };

struct Column {
  std::string title;
  Align align = Align::Left;
};

struct Cell {
  std::string text;
  Colour colour = Colour::Plain;

  Cell(std::string words, Colour paint = Colour::Plain)  // NOLINT(google-explicit-constructor)
      : text(std::move(words)), colour(paint) {}
  Cell(const char* words) : text(words) {}  // NOLINT(google-explicit-constructor)
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Missing cells are empty; surplus ones are dropped. Control characters in a cell are shown as
  // '?': names come from client processes and must not steer the terminal.
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  // Two spaces between columns, no trailing blanks, one line per row and one for the titles.
  std::string text(bool colour) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// `text` with its control characters replaced by '?'.
std::string printable(std::string_view text);

}  // namespace arcomm::arctl
