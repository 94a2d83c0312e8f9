#include "transport/net/goodbye.h"

#include <chrono>
#include <thread>

namespace arcomm::net {

void say_goodbye(Connection& connection, Receiver& receiver, std::string_view why) {
  constexpr std::chrono::milliseconds kLongest{100};
  connection.close(why);
  const auto until = std::chrono::steady_clock::now() + kLongest;
  while (connection.progress(receiver) != Progress::Failed &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace arcomm::net
