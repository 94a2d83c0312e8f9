#include "daemon/exec/gpu/group/gpu_groups.h"

#include <algorithm>
#include <span>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/network/network_fifos.h"
#include "daemon/plan/codec_words.h"
#include "daemon/plan/in_stream_share.h"
#include "daemon/plan/launch_table_between_nodes.h"
#include "daemon/telemetry/log/log.h"
#include "kernels/launch/cuda_scratch.h"
#include "kernels/launch/launch_blocks.h"

namespace arcomm {
namespace {

// Of one call of make(): what takes memory goes on until it is over.
constexpr std::uint64_t kMakeNs = 10'000'000;

// A part that takes time; what is there already is left as it is.
struct MemberPart {
  Memory GpuMember::*place;
  std::uint64_t bytes;
  std::uint64_t most_bytes = 0;  // that it may grow to
  bool is_charged = false;       // to the rank's user
};

Status take(GpuMember& member, const MemberPart& part) {
  Device& device = member.engine->device();
  Result<Memory> memory =
      part.most_bytes > part.bytes
          ? device.allocate_growing(part.bytes, part.most_bytes)
          : device.allocate_for(part.is_charged ? member.token : MemoryToken(), part.bytes);
  if (!memory) return std::move(memory).error();
  member.*part.place = std::move(memory).value();
  return {};
}

// Takes what is missing. False: the time is over.
Result<bool> fill(GpuGroup& group, std::span<const MemberPart> parts, std::uint64_t until_ns) {
  for (GpuMember& member : group.members) {
    for (const MemberPart& part : parts) {
      if (member.*part.place || part.bytes == 0) continue;
      if (now_ns() >= until_ns) return false;
      ARC_RETURN_IF_ERROR(take(member, part));
    }
  }
  return true;
}

// What the member needs whatever its communicator may do, and takes no time.
Status prepare(GpuMember& member) {
  Result<DoorbellPage> doorbells =
      DoorbellPage::create(member.engine->hardware().operations_before);
  if (!doorbells) return std::move(doorbells).error();
  member.doorbells = std::move(doorbells).value();
  Result<std::uint32_t> completion = member.engine->take_completion();
  if (!completion) return std::move(completion).error();
  member.completion = *completion;
  member.taken = member.posted = member.done = member.engine->hardware().operations_before;
  member.words().done = to_word(Done{.number = member.taken});
  member.queue = member.engine->take_queue();
  return {};
}

}  // namespace

void close_mailbox(const GpuMember& member, Done why) {
  const Status told = member.launcher().store(&member.device_mailbox()->closed, to_word(why));
  if (told) return;
  log::error("{}: rank {} cannot be told that its communicator is over: {}", member.engine->name(),
             member.rank, told.error().message);
}

GpuGroup::~GpuGroup() {
  owner_.forget(*this);
}

Result<std::unique_ptr<GpuGroups>> GpuGroups::create(const std::vector<Device*>& gpus,
                                                     const OpenGpu& open) {
  std::unique_ptr<GpuGroups> groups(new GpuGroups());
  for (Device* device : gpus) {
    Result<GpuHardware> hardware = open ? open(*device) : open_gpu(*device);
    if (!hardware) return std::move(hardware).error();
    groups->room.add_gpu(hardware->sms);
    groups->engines.emplace_back(*device, std::move(hardware).value());
  }
  groups->lines_ = std::make_unique<PeerLines>(groups->engines, groups->deferred);
  if (groups->engines.empty()) return groups;
  // The same for all of them.
  Result<InStreamImage> image =
      InStreamImage::create(groups->engines.front().hardware().in_stream_images);
  if (!image) return std::move(image).error();
  groups->image_ = std::move(image).value();
  return groups;
}

Result<GpuEngine*> GpuGroups::find_gpu(const std::string& name) {
  if (name.empty()) return &engines.front();
  std::string known;
  for (GpuEngine& engine : engines) {
    if (engine.name() == name) return &engine;
    known += (known.empty() ? "" : ", ") + engine.name();
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "no GPU \"", name,
               "\" is served here; there are ", known);
}

bool GpuGroups::lost() const {
  return std::ranges::any_of(engines, [](const GpuEngine& engine) { return engine.broken(); });
}

GpuGroup* GpuGroups::find_group(MemberId member, Rank& rank) const {
  const auto found = places_.find(member);
  if (found == places_.end()) return nullptr;
  rank = found->second.rank;
  return found->second.group;
}

Result<std::unique_ptr<GpuGroup>> GpuGroups::begin(const CommunicatorSpec& spec) {
  const std::size_t ranks = spec.ranks.size();
  if (ranks == 0 || ranks > kMaxGpuRanks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a communicator of GPUs has 1 to ",
                 kMaxGpuRanks, " ranks, not ", ranks);
  }
  auto group = std::make_unique<GpuGroup>(*this);
  group->members.resize(ranks);
  // First of all: a group that is given up half made is forgotten rank by rank.
  for (std::size_t i = 0; i < ranks; ++i) group->members[i].rank = static_cast<Rank>(i);
  for (std::size_t i = 0; i < ranks; ++i) {
    GpuMember& member = group->members[i];
    Result<GpuEngine*> engine = find_gpu(spec.ranks[i].device);
    if (!engine) return std::move(engine).error();
    member.engine = *engine;
    member.session = spec.ranks[i].session;
    member.token = spec.ranks[i].token;
    for (std::size_t other = 0; other < i; ++other) {
      if (group->members[other].engine != member.engine) continue;
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "ranks ", spec.ranks[other].rank,
                   " and ", spec.ranks[i].rank, " both name ", member.engine->name(),
                   ": each rank needs a GPU of its own");
    }
    ARC_RETURN_IF_ERROR(prepare(member));
  }
  group->gates = group->members.front().taken;
  group->most_sms = spec.most_sms;
  return group;
}

Result<bool> GpuGroups::make(const CommunicatorSpec& spec, const MakeTable& make_table,
                             std::unique_ptr<GpuGroup>& group) {
  const QuiesceGuard guard(quiescer);
  if (!guard.status()) return guard.status().error();
  if (group == nullptr) {
    Result<std::unique_ptr<GpuGroup>> begun = begin(spec);
    if (!begun) return std::move(begun).error();
    group = std::move(begun).value();
  }
  const auto ranks = static_cast<std::uint32_t>(group->members.size());
  const std::uint64_t until = turn.until_ns(now_ns(), kMakeNs);
  const bool spans_nodes = !spec.nodes.empty();
  const bool is_shared = ranks > 1 && !spans_nodes;
  const MemberPart own[] = {
      {&GpuMember::mailbox, kMailboxBytes, 0, true},
      {&GpuMember::scratch, cuda_state_bytes(ranks), spans_nodes ? 0 : cuda_scratch_bytes(ranks)},
      {&GpuMember::resident_scratch,
       is_shared ? engines.front().hardware().resident_scratch_bytes : 0},
      {&GpuMember::network, spans_nodes ? NetworkFifos::device_bytes(spec) : 0}};
  Result<bool> filled = fill(*group, own, until);
  if (!filled || !*filled) return filled;
  // Again in each turn, and last in the one in which it is whole: others may have come meanwhile.
  group->abilities = abilities_of(*group);
  InStreamOffer offer = in_stream_offer(*group, spec);
  const MemberPart exchange[] = {
      {&GpuMember::exchange, offer.blocks != 0 ? in_stream_exchange_bytes(ranks) : 0, 0, true}};
  filled = fill(*group, exchange, until);
  if (!filled || !*filled) return filled;
  give_back_sms(*group);  // those of an earlier turn
  group->in_stream_blocks = offer.blocks;
  group->in_tiny_share = offer.tiny;
  group->why_not_in_stream = std::move(offer.why_not);
  if (!take_room(*group))
    return error(
        ErrorCode::Unavailable, Reason::None,
        "operations that run on its GPUs have the SMs that a communicator more needs, until "
        "they end: try again");
  group->launches = make_table(
      {.ranks = ranks,
       .atomic_128b_stores = group->abilities.atomic_128b_stores,
       .in_stream_blocks = group->in_stream_blocks,
       .codecs = codecs_,
       .most_in_stream_bytes =
           group->in_tiny_share ? most_bytes_of_tiny_share(group->in_stream_blocks) : kAnyBytes});
  if (spans_nodes) {
    // By what all nodes allow: this one's settings alone would make tables that differ.
    group->launches = make_launch_table_between_nodes(
        {.ranks = static_cast<std::uint32_t>(spec.node_of_rank.size()),
         .nodes = static_cast<std::uint32_t>(spec.nodes.size()),
         .on_gpus = true},
        GpuExchange::kAlgorithm, spec.policy);
    group->why_not_in_stream = "its ranks are on several nodes";
    group->why_no_codecs = why_no_codecs(spec.policy);
  }
  if (is_shared) ARC_RETURN_IF_ERROR(ResidentPath::join(*group));
  return true;
}

bool GpuGroups::take_room(GpuGroup& group) {
  std::uint32_t fewest = ~std::uint32_t{0};
  group.place.parts.clear();
  for (const GpuMember& member : group.members) {
    const auto gpu = static_cast<std::uint32_t>(member.engine - engines.data());
    group.place.parts.push_back({.gpu = gpu, .queue = member.queue});
    fewest = std::min(fewest, member.engine->hardware().sms);
  }
  group.most_blocks = most_launched_blocks(fewest, kSparedSms);
  if (group.most_sms != 0) group.most_blocks = std::min(group.most_blocks, group.most_sms);
  group.place.spans_nodes = static_cast<bool>(group.members.front().network);
  room.lend(group.place, group.in_stream_blocks);
  group.has_lent_sms = true;
  return room.has_lent(group.place);
}

void GpuGroups::give_back_sms(GpuGroup& group) {
  if (std::exchange(group.has_lent_sms, false)) room.take_back(group.place, group.in_stream_blocks);
}

CudaAbilities GpuGroups::abilities_of(const GpuGroup& group) const {
  CudaAbilities abilities{.atomic_128b_stores = true};
  for (const GpuMember& writer : group.members) {
    for (const GpuMember& reader : group.members)
      abilities.atomic_128b_stores &= lines_->arrive_whole(*writer.engine, *reader.engine);
  }
  return abilities;
}

InStreamOffer GpuGroups::in_stream_offer(const GpuGroup& group,
                                         const CommunicatorSpec& spec) const {
  if (group.members.size() < 2 || !spec.nodes.empty()) return {};
  if (!in_stream_) return {.why_not = "gpu.in_stream is off"};
  if (!image_) return {.why_not = "this daemon has no in-stream kernels for these GPUs"};
  return offer_in_stream(group, spec, all, *lines_, in_stream_communicators_);
}

void GpuGroups::adopt(Communicator& communicator) {
  GpuGroup& group = *gpus_of(communicator);
  const std::uint64_t now = now_ns();
  for (GpuMember& member : group.members) {
    member.id = communicator.seats[static_cast<std::size_t>(member.rank)].member;
    member.changed_ns = now;
    places_[member.id] = {&group, member.rank};
  }
  group.communicator = &communicator;
  all.push_back(&group);
}

void GpuGroups::forget(GpuGroup& group) {
  // What was launched speculatively is cancelled, and what it uses is kept until it has left.
  speculator.withdraw(group, 0);
  std::erase(all, &group);
  give_back_sms(group);
  room.give_up_turn(group.place);
  room.leave(group.place);
  in_stream_waits.forget(group);
  if (group.communicator != nullptr) {
    for (const GpuMember& member : group.members) places_.erase(member.id);
  }
  group.prepared.drop_all();
  deferred.add(group.prepared.dropped(), group);
  for (GpuMember& member : group.members) deferred.add(member);
}

Result<MailboxDescriptors> GpuGroups::export_mailbox(const GpuGroup& group, Rank rank) const {
  const GpuMember& member = group.member(rank);
  MailboxDescriptors out{.descriptors = {},
                         .mailbox_bytes = member.mailbox.bytes(),
                         .launches = group.launches,
                         .why_no_codecs = group.why_no_codecs};
  const auto add = [&out](Result<UniqueFd> descriptor) -> Status {
    if (!descriptor) return std::move(descriptor).error();
    out.descriptors.push_back(std::move(descriptor).value());
    return {};
  };
  ARC_RETURN_IF_ERROR(add(member.mailbox.export_fd()));
  ARC_RETURN_IF_ERROR(add(member.doorbells.export_fd()));
  if (!group.is_in_stream()) return out;
  ARC_RETURN_IF_ERROR(add(image_.export_fd()));
  for (const GpuMember& each : group.members) ARC_RETURN_IF_ERROR(add(each.exchange.export_fd()));
  out.exchange_bytes = member.exchange.bytes();
  return out;
}

void GpuGroups::close(GpuGroup& group, Done why) {
  if (group.closed) return;
  group.closed = true;
  give_back_sms(group);
  why.number = 0;
  if (why.code == 0) why.code = static_cast<std::uint8_t>(ErrorCode::Aborted);
  if (group.running.number != 0) speculator.open(group, group.running);
  speculator.withdraw(group, 0);
  for (const GpuMember& member : group.members) {
    // What runs ends first, on all ranks: what is told afterwards may take its time.
    if (member.slot == kNoSlot) continue;
    if (const Status told = member.grid().abort_member(member.slot, why); !told) {
      log::error("{}: rank {}'s resident operations cannot be ended: {}", member.engine->name(),
                 member.rank, told.error().message);
    }
  }
  for (const GpuMember& member : group.members) close_mailbox(member, why);
}

void GpuGroups::end_after_leave(GpuGroup& group, Rank rank, Done why) {
  const std::uint32_t done = group.member(rank).done;
  if (!group.ending || !reached(group.ends_after, done)) group.ends_after = done;
  if (!group.ending) group.ending = why;
}

void GpuGroups::retire(GpuGroup& group, Rank rank) {
  group.member(rank).active = false;
  speculator.withdraw(group, kMomentNs);
  if (const Status retired = resident.retire(group, rank); !retired) {
    log::error("rank {} of communicator {} may still be at work: {}", rank,
               short_name(group.communicator->unique_id), retired.error().to_string());
  }
}

}  // namespace arcomm
