// An ordered queue of work on a device. Stream owns, StreamRef borrows.
// Thread: one thread at a time enqueues (enqueue, record, wait_for); synchronize and query may be
// called from any. Destroying a Stream waits for what was enqueued. Must be destroyed before its
// Device.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "proto/status.h"
#include "transport/device/event.h"

namespace arcomm {

// Work as two words, so that enqueuing allocates nothing: run(context) on the stream. `context`
// outlives the run. On the host it is the work itself; a device with its own queue calls it in
// stream order on a host thread.
struct StreamTask {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
};

enum class Enqueue : std::uint8_t {
  Done,
  Full,    // the queue is bounded: nothing was enqueued, try again after the stream has advanced
  Failed,  // nothing will be enqueued any more: the device is in error, and synchronize() says
           // which
};

class StreamRef {
 public:
  class Backing {
   public:
    virtual ~Backing() = default;
    virtual Enqueue enqueue(StreamTask task) = 0;
    virtual Enqueue record(EventRef event) = 0;
    virtual Enqueue wait_for(EventRef event) = 0;
    virtual bool query() const = 0;
    virtual Status synchronize(std::chrono::nanoseconds timeout) const = 0;
  };

  explicit StreamRef(Backing* backing) : backing_(backing) {}

  Enqueue enqueue(StreamTask task) const { return backing_->enqueue(task); }
  Enqueue record(EventRef event) const { return backing_->record(event); }
  // What is enqueued later runs after the event's last record at the time of this call.
  Enqueue wait_for(EventRef event) const { return backing_->wait_for(event); }
  // Whether everything enqueued so far has run. Acquires what it wrote.
  bool query() const { return backing_->query(); }
  Status synchronize(std::chrono::nanoseconds timeout) const {
    return backing_->synchronize(timeout);
  }

 private:
  Backing* backing_;
};

class Stream {
 public:
  Stream() = default;
  explicit Stream(std::unique_ptr<StreamRef::Backing> backing) : backing_(std::move(backing)) {}

  explicit operator bool() const { return backing_ != nullptr; }
  // Preconditions of the rest: not empty.
  StreamRef ref() const { return StreamRef(backing_.get()); }
  Enqueue enqueue(StreamTask task) const { return ref().enqueue(task); }
  Enqueue record(EventRef event) const { return ref().record(event); }
  Enqueue wait_for(EventRef event) const { return ref().wait_for(event); }
  bool query() const { return ref().query(); }
  Status synchronize(std::chrono::nanoseconds timeout) const { return ref().synchronize(timeout); }

 private:
  std::unique_ptr<StreamRef::Backing> backing_;
};

}  // namespace arcomm
