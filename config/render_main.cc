// Writes a generated text into the file that is checked in: arcomm_render_config toml|manual FILE.
#include <fstream>
#include <iostream>

#include "config/settings.h"

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "toml" && what != "manual") {
    std::cerr << "usage: arcomm_render_config toml|manual FILE\n";
    return 2;
  }
  std::ofstream file(argv[2], std::ios::trunc);
  file << (what == "toml" ? arcomm::render_default_toml() : arcomm::render_manual());
  file.close();
  if (!file) std::cerr << "cannot write " << argv[2] << '\n';
  return file ? 0 : 1;
}
