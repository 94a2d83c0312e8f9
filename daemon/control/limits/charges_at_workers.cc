#include "daemon/control/limits/charges_at_workers.h"

#include <mutex>
#include <utility>

namespace arcomm {

// For tokens, which may outlive the loop.
struct ChargesAtWorkers::Loop {
  std::mutex mutex;
  EventLoop* loop;  // guarded by mutex; null once that is over

  void post(EventLoop::Task task) {
    const std::lock_guard lock(mutex);
    if (loop != nullptr) loop->post(std::move(task));
  }
};

ChargesAtWorkers::ChargesAtWorkers(EventLoop& loop) : loop_(new Loop{.mutex = {}, .loop = &loop}) {}

ChargesAtWorkers::~ChargesAtWorkers() {
  *kept_ = {};
  const std::lock_guard lock(loop_->mutex);
  loop_->loop = nullptr;
}

MemoryToken ChargesAtWorkers::token_of(uid_t uid, std::shared_ptr<const void> charges) {
  const std::uint64_t number = next_++;
  kept_->charges.emplace(number, std::move(charges));
  ++kept_->of_uid[uid];
  return MemoryToken(nullptr, [loop = loop_, kept = kept_, uid, number](std::nullptr_t) {
    loop->post([kept, uid, number] {
      if (kept->charges.erase(number) == 0) return;  // all were given back
      if (const auto count = kept->of_uid.find(uid); --count->second == 0)
        kept->of_uid.erase(count);
    });
  });
}

}  // namespace arcomm
