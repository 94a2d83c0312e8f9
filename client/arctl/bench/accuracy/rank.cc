#include "client/arctl/bench/accuracy/rank.h"

#include "client/arctl/bench/accuracy/judge.h"
#include "client/arctl/bench/element.h"

namespace arcomm::arctl {

Status AccuracyRank::make_inputs(const BenchCase& what) {
  if (data_ == what.data && inputs_.front().size() == what.count) return {};
  const BoardPage& page = board_.page();
  inputs_.clear();
  data_.reset();
  if (what.data == AccuracyData::Recorded) {
    const Result<RecordedData> recorded = RecordedData::read(page.data_file, page.ranks);
    if (!recorded) return recorded.error();
    for (Rank rank = 0; rank < page.ranks; ++rank)
      inputs_.push_back(recorded->of(rank, what.dtype));
  } else {
    for (Rank rank = 0; rank < page.ranks; ++rank) {
      inputs_.push_back(make_data(what.data, rank, what.count, what.dtype));
      board_.beat(rank_);
    }
  }
  if (inputs_.front().size() != what.count) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue, page.data_file,
                 " has changed meanwhile: ", inputs_.front().size(), " values for each rank, not ",
                 what.count);
  }
  data_ = what.data;
  return {};
}

Status AccuracyRank::run(const BenchCase& what, std::byte* send, const std::byte* recv,
                         const std::function<Status()>& reduce) {
  ARC_RETURN_IF_ERROR(make_inputs(what));
  const std::vector<float>& own = inputs_[static_cast<std::size_t>(rank_)];
  for (std::size_t i = 0; i < own.size(); ++i)
    encode(what.dtype, own[i], send + i * size_of(what.dtype));
  ARC_RETURN_IF_ERROR(reduce());
  board_.page().slots[rank_].accuracy = judge(inputs_, recv, what.dtype, what.op, what.codec);
  return {};
}

}  // namespace arcomm::arctl
