#include "daemon/proxy/proxy_thread.h"

#include <system_error>
#include <utility>

namespace arcomm::proxy {

Result<std::unique_ptr<ProxyThread>> ProxyThread::start(WaitPolicy policy, ProxyEvents& events) {
  auto wait = AdaptiveWait::create(policy);
  if (!wait) return wait.error();
  std::unique_ptr<ProxyThread> proxy(new ProxyThread(std::move(*wait), events));
  try {
    proxy->thread_ = std::thread([raw = proxy.get()] { raw->loop(); });
  } catch (const std::system_error& failure) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "starting the proxy's thread: ", failure.what());
  }
  return proxy;
}

ProxyThread::~ProxyThread() {
  stops_.store(true, std::memory_order_release);  // pairs with loop()'s acquire
  ring();
  if (thread_.joinable()) thread_.join();
}

void ProxyThread::run(std::function<void(ProxyEngine&)> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    has_tasks_.store(true, std::memory_order_release);  // pairs with run_tasks()'s acquire
  }
  ring();
}

bool ProxyThread::run_tasks() {
  if (!has_tasks_.load(std::memory_order_acquire)) return false;
  std::vector<std::function<void(ProxyEngine&)>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    has_tasks_.store(false, std::memory_order_relaxed);
  }
  for (const auto& task : tasks) task(engine_);
  return true;
}

bool ProxyThread::last_look(bool asleep) {
  engine_.set_doorbells(asleep ? 1 : 0);
  if (!asleep) return false;
  // Behind the doorbells, as AdaptiveWait's fence is before them.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return stops_.load(std::memory_order_acquire) || has_tasks_.load(std::memory_order_acquire) ||
         engine_.progress(AdaptiveWait::now_ns());
}

void ProxyThread::loop() {
  std::vector<int> descriptors;
  while (!stops_.load(std::memory_order_acquire)) {
    bool moved = run_tasks();
    moved |= engine_.progress(AdaptiveWait::now_ns());
    if (moved) {
      wait_->moved();
      continue;
    }
    descriptors.clear();
    engine_.list_descriptors(descriptors);
    wait_->wait({.is_open = engine_.is_open(),
                 .deadline_ns = engine_.next_deadline_ns(),
                 .descriptors = descriptors},
                [this](bool asleep) { return last_look(asleep); });
  }
}

}  // namespace arcomm::proxy
