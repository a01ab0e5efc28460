// Which rows a sweep takes to a cache together.
#pragma once

#include <cstring>

#include "plan.h"

namespace qmljob {

// The rows of a sweep, chunk by chunk: a chunk has those that differ in the sweep's local bits only.
template <class Real>
class Chunks {
 public:
  Chunks(const Sweep& sweep, int row_bits) : bits_(static_cast<int>(sweep.locals.size())) {
    int run = 0;
    while (run < bits_ && sweep.locals[run] == run) ++run;
    run_bytes_ = (sizeof(Real) * kRow<Real>) << run;
    for (int local : sweep.locals) mask_ |= int64_t{1} << local;
    count_ = int64_t{1} << (row_bits - bits_);
    contiguous_ = run == bits_;
    runs_.resize(size_t{1} << (bits_ - run));
    for (size_t number = 0; number < runs_.size(); ++number) {
      int64_t row = 0;
      for (int each = run; each < bits_; ++each) row |= int64_t(number >> (each - run) & 1) << sweep.locals[each];
      runs_[number] = row * kRow<Real>;
    }
  }
  int bits() const { return bits_; }
  int64_t count() const { return count_; }
  bool contiguous() const { return contiguous_; }
  size_t numbers() const { return size_t{kRow<Real>} << bits_; }

  // The offset of a chunk's first row: its number spread over the bits that are not local.
  int64_t base(int64_t chunk) const {
    int64_t row = 0;
    for (int bit = 0; chunk != 0; ++bit) {
      if (mask_ >> bit & 1) continue;
      row |= (chunk & 1) << bit;
      chunk >>= 1;
    }
    return row * kRow<Real>;
  }
  void gather(const Real* from, Real* to) const {
    char* at = reinterpret_cast<char*>(to);
    for (int64_t run : runs_) std::memcpy(at, from + run, run_bytes_), at += run_bytes_;
  }
  void scatter(const Real* from, Real* to) const {
    const char* at = reinterpret_cast<const char*>(from);
    for (int64_t run : runs_) std::memcpy(to + run, at, run_bytes_), at += run_bytes_;
  }

 private:
  int bits_;
  int64_t mask_ = 0, count_;
  bool contiguous_;
  size_t run_bytes_;
  std::vector<int64_t> runs_;
};

}  // namespace qmljob
