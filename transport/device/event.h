// A point in a stream's order: recorded into a stream, reached when everything enqueued before it
// has run. Event owns, EventRef borrows. Recording is the business of the stream's one enqueuing
// thread; query and synchronize may be called from any thread. Must be destroyed before its Device
// and not while a record of it is still to run.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "proto/status.h"

namespace arcomm {

class EventRef {
 public:
  class Backing {
   public:
    virtual ~Backing() = default;
    virtual bool query() const = 0;
    virtual Status synchronize(std::chrono::nanoseconds timeout) const = 0;
  };

  explicit EventRef(Backing* backing) : backing_(backing) {}

  // Whether the last record has been reached; true for an event that was never recorded. Acquires
  // what ran before.
  bool query() const { return backing_->query(); }
  // DeadlineExceeded when the last record was not reached within `timeout`.
  Status synchronize(std::chrono::nanoseconds timeout) const {
    return backing_->synchronize(timeout);
  }
  Backing* backing() const { return backing_; }

 private:
  Backing* backing_;
};

class Event {
 public:
  Event() = default;
  explicit Event(std::unique_ptr<EventRef::Backing> backing) : backing_(std::move(backing)) {}

  explicit operator bool() const { return backing_ != nullptr; }
  // Precondition: not empty.
  EventRef ref() const { return EventRef(backing_.get()); }
  bool query() const { return ref().query(); }
  Status synchronize(std::chrono::nanoseconds timeout) const { return ref().synchronize(timeout); }

 private:
  std::unique_ptr<EventRef::Backing> backing_;
};

}  // namespace arcomm
