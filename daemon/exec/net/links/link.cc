#include "daemon/exec/net/links/link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/net/goodbye.h"

namespace arcomm {
namespace {

constexpr std::size_t kMostSpare = 64;
// progress() of one link, so that a busy peer holds up no session.
constexpr int kMostRounds = 4;
// A frame that a thread which is awake may better send than the worker, after others.
constexpr std::size_t kWorthAThread = std::size_t{8} << 10;

}  // namespace

Result<std::byte*> Link::BulkReceiver::place(const net::FrameHeader& header) {
  return error(ErrorCode::DataLoss, Reason::Corrupt, "a ", net::text_of(header.kind),
               " frame on a bulk stream: puts and signals are allowed");
}

Result<std::unique_ptr<Link>> Link::create(LinkSpec spec, Listener& listener,
                                           std::function<void()> on_news) {
  if (spec.peer == 0 || spec.messages == nullptr || spec.regions == nullptr ||
      (spec.bulk.size() != spec.bulk_options.size() && !spec.bulk_options.empty())) {
    return error(ErrorCode::InvalidArgument, Reason::Bug, "the link to ", spec.name,
                 " lacks its peer, stream 0, regions or a stream's options");
  }
  return std::unique_ptr<Link>(new Link(std::move(spec), listener, std::move(on_news)));
}

Status Link::start() {
  for (std::size_t i = 0; i < spec_.bulk.size(); ++i) {
    if (driven_) {
      driven_->add(std::move(spec_.bulk[i]));
    } else {
      ARC_RETURN_IF_ERROR(bulk_->add(std::move(spec_.bulk[i]), spec_.bulk_options[i]));
    }
  }
  spec_.bulk.clear();
  return {};
}

Link::Link(LinkSpec spec, Listener& listener, std::function<void()> on_news)
    : spec_(std::move(spec)), listener_(listener), arriving_(net::kMostMessageBytes) {
  if (spec_.bulk_options.empty() && !spec_.bulk.empty()) {
    driven_.emplace(bulk_receiver_);
  } else {
    bulk_.emplace(bulk_receiver_, std::move(on_news));
  }
}

Link::~Link() {
  // First: where a bulk stream has ended, the peer listens no more.
  say_goodbye();
  bulk_.reset();
  driven_.reset();
  spec_.messages->abandon(*this);
  spec_.messages.reset();
  // Nobody reads the payloads any more.
  for (const Loaned& loaned : loaned_) loaned.on_loan->fetch_sub(1, std::memory_order_release);
}

// So that the peer sees an end with its reason, and not a death. What it is told of its own fault
// may be on its way already.
void Link::say_goodbye() {
  net::Connection& messages = *spec_.messages;
  if (messages.is_open() == net::Progress::Done) {
    fail(error(ErrorCode::Cancelled, Reason::ShuttingDown, "the worker lets go of it"));
    post_unsent();
  }
  net::say_goodbye(messages, *this, failure_ ? failure_->message : "");
}

void Link::send(net::MessageKind kind, const net::FrameHeader& names,
                std::initializer_list<std::span<const std::byte>> parts) {
  if (has_failed()) return;
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  Unsent& message = unsent_.emplace_back();
  message.names = {.kind = net::FrameKind::Message,
                   .communicator = names.communicator,
                   .epoch = names.epoch,
                   .seq = names.seq};
  if (!spare_.empty()) {
    message.bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  const net::MessageHead head{.kind = kind, .bytes = static_cast<std::uint32_t>(bytes)};
  message.bytes.resize(sizeof head + bytes);
  std::memcpy(message.bytes.data(), &head, sizeof head);
  std::size_t at = sizeof head;
  for (const auto& part : parts) {
    if (!part.empty()) std::memcpy(message.bytes.data() + at, part.data(), part.size());
    at += part.size();
  }
  unsent_bytes_ += message.bytes.size();
  post_unsent();
  if (unsent_bytes_ <= kMostUnsentBytes) return;
  fail(error(ErrorCode::Unavailable, Reason::RemoteDied, "node ", spec_.name,
             " reads nothing: ", unsent_bytes_, " bytes of messages wait for it"));
}

bool Link::post_unsent() {
  bool moved = false;
  while (posted_ < unsent_.size()) {
    Unsent& next = unsent_[posted_];
    if (spec_.messages->post({.header = next.names, .payload = next.bytes}, next.transfer) !=
        net::Progress::Done)
      break;
    ++posted_;
    moved = true;
  }
  return moved;
}

bool Link::give_back_sent() {
  bool moved = false;
  while (posted_ > 0 && spec_.messages->test(unsent_.front().transfer) == net::Progress::Done) {
    std::vector<std::byte>& bytes = unsent_.front().bytes;
    unsent_bytes_ -= bytes.size();
    if (spare_.size() < kMostSpare) spare_.push_back(std::move(bytes));
    unsent_.pop_front();
    --posted_;
    moved = true;
  }
  while (!loaned_.empty() &&
         spec_.messages->test(loaned_.front().transfer) == net::Progress::Done) {
    loaned_.front().on_loan->fetch_sub(1, std::memory_order_release);
    loaned_.pop_front();
    moved = true;
  }
  return moved;
}

net::Progress Link::post(const net::Frame& frame, net::OnLoan& on_loan) {
  if (has_failed()) return net::Progress::Failed;
  const bool has_bulk = driven_ || bulk_->size() > 0;
  // What is no longer than a message goes beside messages: no thread is to be woken for it, and it
  // waits behind nothing long. The second of several need not wait where a thread is awake.
  const bool has_thread =
      bulk_ && frame.payload.size() >= kWorthAThread && !loaned_.empty() && bulk_->is_awake();
  if (!has_bulk || (frame.payload.size() <= net::kMostMessageBytes && !has_thread)) {
    const net::Progress posted = post_on_messages(frame, on_loan);
    if (posted == net::Progress::Done || !has_bulk) return posted;
  }
  return driven_ ? driven_->post(frame, on_loan) : bulk_->post(frame, on_loan);
}

net::Progress Link::post_on_messages(const net::Frame& frame, net::OnLoan& on_loan) {
  if (posted_ < unsent_.size()) return net::Progress::Again;  // messages come first
  Loaned loaned{.on_loan = &on_loan};
  const net::Progress posted = spec_.messages->post(frame, loaned.transfer);
  if (posted == net::Progress::Done) loaned_.push_back(loaned);
  return posted;
}

bool Link::progress() {
  bool moved = driven_ && driven_->progress();
  // Looked at first: the peer said on stream 0 why it ends the others.
  const bool is_at_end = driven_ ? driven_->has_failed() : bulk_->has_failed();
  for (int round = 0; round < kMostRounds && !has_failed(); ++round) {
    const net::Progress progress = spec_.messages->progress(*this);
    // Closed: the peer has broken the protocol, and is being told.
    if (progress == net::Progress::Failed || spec_.messages->is_open() == net::Progress::Failed) {
      fail(spec_.messages->error());
      return true;
    }
    const bool gave_back = give_back_sent();
    const bool posted = post_unsent();
    moved |= progress == net::Progress::Done || gave_back;
    // A message that came may have been answered.
    if (progress == net::Progress::Again && !posted) break;
  }
  if (!is_at_end || has_failed()) return moved;
  fail(driven_ ? *driven_->failure() : *bulk_->failure());
  return true;
}

std::vector<int> Link::descriptors() const {
  std::vector<int> all = driven_ ? driven_->descriptors() : std::vector<int>();
  all.push_back(spec_.messages->descriptor());
  return all;
}

void Link::fail(Error why) {
  if (!failure_) failure_ = std::move(why);
}

Result<std::byte*> Link::place(const net::FrameHeader& header) {
  if (header.kind == net::FrameKind::Message) return arriving_.data();
  return error(ErrorCode::DataLoss, Reason::Corrupt, "a ", net::text_of(header.kind),
               " frame on stream 0: messages, puts and signals are allowed");
}

Status Link::arrived(const net::FrameHeader& header, std::span<const std::byte> payload) {
  if (has_failed()) return {};  // what comes after the end is of no interest
  const Result<net::Message> message = net::read_message(payload);
  if (!message) return message.error();
  return listener_.message_came(*this, header, *message);
}

LinkSnapshot Link::snapshot() const {
  const net::LinkStatistics messages = spec_.messages->statistics();
  LinkSnapshot shot{.peer = spec_.peer,
                    .sent_bytes = messages.sent_bytes,
                    .received_bytes = messages.received_bytes,
                    .retransmits = messages.retransmits,
                    .rtt_us = messages.least_rtt_us,
                    .waited_for_peer_us = messages.waited_for_peer_us,
                    .waited_for_buffer_us = messages.waited_for_buffer_us};
  for (const net::StreamCounters& stream : driven_ ? driven_->counters() : bulk_->counters()) {
    shot.sent_bytes += stream.sent_bytes;
    // Puts do not pass by the stream's thread's own count.
    shot.received_bytes += std::max(stream.received_bytes, stream.link.received_bytes);
    shot.retransmits += stream.link.retransmits;
    shot.delivered_bytes_per_second += stream.link.delivered_bytes_per_second;
    shot.waited_for_peer_us += stream.link.waited_for_peer_us;
    shot.waited_for_buffer_us += stream.link.waited_for_buffer_us;
    shot.spun_ns += stream.spun_ns;
    shot.slept_ns += stream.slept_ns;
  }
  if (shot.delivered_bytes_per_second == 0)
    shot.delivered_bytes_per_second = messages.delivered_bytes_per_second;
  return shot;
}

}  // namespace arcomm
