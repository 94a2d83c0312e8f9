#include "tests/gpu/service/client/client_options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace arcomm::gpu {
namespace {

std::uint64_t bytes_from(std::string_view text) {
  char* end = nullptr;
  const std::string number(text);
  const std::uint64_t value = std::strtoull(number.c_str(), &end, 10);
  switch (*end) {
    case 'k':
      return value << 10;
    case 'm':
      return value << 20;
    case 'g':
      return value << 30;
    case '\0':
      return value;
    default:
      die("a size is " + number + "; write 1024, 64k, 16m or 1g");
  }
}

std::vector<std::uint64_t> sizes_from(const std::string& list) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    sizes.push_back(bytes_from(std::string_view(list).substr(begin, end - begin)) / 4 * 4);
    begin = end + 1;
  }
  return sizes;
}

Codec codec_from(const std::string& name) {
  for (const Codec codec : kRealCodecs) {
    if (name == text_of(codec)) return codec;
  }
  die("there is no codec " + name);
}

}  // namespace

Options options;
std::uint64_t current_replay = 0;

void die(const std::string& what) {
  const std::string at = current_replay == 0 ? "" : ", at replay " + std::to_string(current_replay);
  std::fprintf(stderr, "rank %d%s: %s\n", options.rank, at.c_str(), what.c_str());
  std::exit(1);
}

void cuda(cudaError_t result, const char* what) {
  if (result != cudaSuccess) die(std::string(what) + ": " + cudaGetErrorString(result));
}

void arc(arcResult_t result, const char* what) {
  if (result != arcSuccess) die(std::string(what) + ": " + arcGetLastError(nullptr));
}

void parse(int argc, char** argv) {
  std::string sizes = "1k,4k,16k,64k,256k,1m,4m,16m,64m,256m,1g";
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) die(std::string(name) + " needs a value");
      return argv[++i];
    };
    if (name == "--rank") {
      options.rank = std::atoi(value().c_str());
    } else if (name == "--ranks") {
      options.ranks = std::atoi(value().c_str());
    } else if (name == "--gpu") {
      options.gpu = std::atoi(value().c_str());
    } else if (name == "--id-file") {
      options.id_file = value();
    } else if (name == "--runtime-dir") {
      options.runtime_dir = value();
    } else if (name == "--nccl") {
      options.nccl = value();
    } else if (name == "--sizes") {
      sizes = value();
    } else if (name == "--timeout-ms") {
      options.timeout_ms = std::strtoull(value().c_str(), nullptr, 10);
    } else if (name == "--verify") {
      options.verify = true;
    } else if (name == "--faults") {
      options.faults = true;
    } else if (name == "--calls") {
      options.times_calls = true;
    } else if (name == "--loop") {
      options.loop = true;
    } else if (name == "--hold") {
      options.hold_seconds = std::strtoull(value().c_str(), nullptr, 10);
    } else if (name == "--soak") {
      options.soak_seconds = std::strtoull(value().c_str(), nullptr, 10);
    } else if (name == "--replays") {
      options.replays = std::strtoull(value().c_str(), nullptr, 10);
    } else if (name == "--seed") {
      options.seed = std::strtoull(value().c_str(), nullptr, 10);
    } else if (name == "--graph") {
      options.graph_only = true;
    } else if (name == "--memory") {
      const std::string memory = value();
      if (memory != "arc" && memory != "cuda") die("--memory is arc or cuda");
      options.is_arc_memory = memory == "arc";
    } else if (name == "--dtype") {
      const std::string dtype = value();
      if (dtype == "f16") {
        options.dtype = DType::Float16;
      } else if (dtype == "bf16") {
        options.dtype = DType::BFloat16;
      } else if (dtype == "f32") {
        options.dtype = DType::Float32;
      } else {
        die("--dtype is f16, bf16 or f32");
      }
    } else if (name == "--codec") {
      options.codec = codec_from(value());
    } else {
      die("unknown option " + std::string(name));
    }
  }
  if (options.rank < 0 || options.ranks <= options.rank || options.id_file.empty()) {
    die("--rank R --ranks N --id-file PATH are needed");
  }
  if (options.gpu < 0) options.gpu = options.rank;
  if (!options.loop && !options.faults && !options.times_calls && !options.soak() &&
      options.hold_seconds == 0)
    options.verify = true;
  options.sizes = sizes_from(sizes);
}

}  // namespace arcomm::gpu
