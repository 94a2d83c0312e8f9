#include "daemon/exec/net/links/link_table.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace arcomm {

LinkTable::~LinkTable() {
  close_all(error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon stopped"));
  for (Disposal& disposal : disposals_) disposal.thread.join();
}

namespace {

bool must_poll(const Link& link) {
  return std::ranges::any_of(link.descriptors(), [](int descriptor) { return descriptor < 0; });
}

}  // namespace

Result<std::vector<int>> LinkTable::open(LinkSpec spec) {
  if (const Link* there = find(spec.peer); there != nullptr)
    return error(ErrorCode::AlreadyExists, Reason::BadValue, "there is a link to node ",
                 there->name(), " already");
  Result<std::unique_ptr<Link>> made = Link::create(std::move(spec), listener_, on_news_);
  if (!made) return std::move(made).error();
  std::unique_ptr<Link> link = std::move(made).value();
  if (Status started = link->start(); !started) {
    link->fail(started.error());
    dispose(std::move(link));  // some of its streams may have to end
    return std::move(started).error();
  }
  // All endpoints of a daemon share one.
  regions_ = link->regions();
  must_be_polled_ = must_be_polled_ || must_poll(*link);
  std::vector<int> descriptors = link->descriptors();
  std::erase_if(descriptors, [](int descriptor) { return descriptor < 0; });
  links_.push_back(std::move(link));
  return descriptors;
}

bool LinkTable::close(PeerId peer, const Error& why) {
  const auto found = std::ranges::find(links_, peer, [](const auto& link) { return link->peer(); });
  if (found == links_.end()) return false;
  (*found)->fail(why);
  dispose(take(static_cast<std::size_t>(found - links_.begin())));
  return true;
}

void LinkTable::close_all(const Error& why) {
  while (!links_.empty()) {
    links_.back()->fail(why);
    dispose(take(links_.size() - 1));
  }
}

bool LinkTable::poll() {
  bool moved = false, failed = false;
  for (const auto& link : links_) {
    moved |= link->progress();
    failed |= link->has_failed();
  }
  if (!failed) return moved;
  // One at a time: the listener may send, and so make another one fail.
  for (std::size_t i = 0; i < links_.size();) {
    if (!links_[i]->has_failed()) {
      ++i;
      continue;
    }
    std::unique_ptr<Link> link = take(i);
    listener_.link_ended(link->peer(), link->name(), *link->failure());
    dispose(std::move(link));
    i = 0;
  }
  return true;
}

bool LinkTable::is_sending() const {
  return std::ranges::any_of(links_, [](const auto& link) { return link->is_sending(); });
}

const Link* LinkTable::find(PeerId peer) const {
  for (const auto& link : links_) {
    if (link->peer() == peer) return link.get();
  }
  return nullptr;
}

Link* LinkTable::at(PeerId peer) {
  return const_cast<Link*>(std::as_const(*this).find(peer));
}

bool LinkTable::has_room(PeerId peer) const {
  const Link* link = find(peer);
  return link == nullptr || link->has_room();
}

void LinkTable::fail(PeerId peer, Error why) {
  if (Link* link = at(peer); link != nullptr) link->fail(std::move(why));
}

void LinkTable::send(PeerId peer, net::MessageKind kind, const net::FrameHeader& names,
                     std::initializer_list<std::span<const std::byte>> parts) {
  if (Link* link = at(peer); link != nullptr) link->send(kind, names, parts);
}

net::Progress LinkTable::post(PeerId peer, const net::Frame& frame, net::OnLoan& on_loan) {
  Link* link = at(peer);
  return link == nullptr ? net::Progress::Failed : link->post(frame, on_loan);
}

std::uint64_t LinkTable::moved_bytes(PeerId peer) const {
  const Link* link = find(peer);
  if (link == nullptr) return 0;
  const LinkSnapshot shot = link->snapshot();
  return shot.sent_bytes + shot.received_bytes;
}

std::unique_ptr<Link> LinkTable::take(std::size_t index) {
  std::unique_ptr<Link> link = std::move(links_[index]);
  links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(index));
  must_be_polled_ = std::ranges::any_of(links_, [](const auto& left) { return must_poll(*left); });
  return link;
}

void LinkTable::dispose(std::unique_ptr<Link> link) {
  join_disposed();
  auto is_over = std::make_shared<std::atomic<bool>>(false);
  try {
    std::thread thread([held = std::move(link), is_over]() mutable {
      held.reset();
      is_over->store(true, std::memory_order_release);
    });
    disposals_.push_back({.thread = std::move(thread), .is_over = std::move(is_over)});
  } catch (const std::system_error&) {
    // No thread is to be had: it has ended here, in its tenths of a second.
  }
}

void LinkTable::join_disposed() {
  std::erase_if(disposals_, [](Disposal& disposal) {
    if (!disposal.is_over->load(std::memory_order_acquire)) return false;
    disposal.thread.join();
    return true;
  });
}

std::vector<LinkSnapshot> LinkTable::snapshots() const {
  std::vector<LinkSnapshot> all;
  for (const auto& link : links_) all.push_back(link->snapshot());
  return all;
}

}  // namespace arcomm
