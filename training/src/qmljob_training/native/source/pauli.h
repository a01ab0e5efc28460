// Observables on rows. The signs of a tile of rows are made, or summed, by a Walsh-Hadamard transform (Fino and Algazi
// 1976, IEEE Trans. Comput. C-25): a string then costs one addition a tile, however many of them there are.
#pragma once

#include "simd.h"

namespace qmljob {
namespace QMLJOB_ISA {

constexpr int kTileBits = 4;
// Tiles whose sums are added in the amplitudes' own precision before they go to double precision.
constexpr int kTilesASum = 64;

template <class Real>
inline void walsh(Vector<Real>* tile, int bits) {
  for (int bit = 0; bit < bits; ++bit) {
    for (int row = 0; row < 1 << bits; ++row) {
      if (row >> bit & 1) continue;
      const Vector<Real> one = tile[row], other = tile[row | 1 << bit];
      tile[row] = one + other;
      tile[row | 1 << bit] = one - other;
    }
  }
}

// Loads a slice of a row with its lanes at lane ^ x.
template <class Real>
inline Vector<Real> load_flipped(const Real* from, int slice, int x) {
  constexpr int kSize = kVector<Real>;
  const Vector<Real> whole = load<Real>(from + (slice ^ (x / kSize)) * kSize);
  if (x % kSize == 0) return whole;
  typename VectorOf<Real>::Index index = {};
  for (int lane = 0; lane < kSize; ++lane) index[lane] = lane ^ (x % kSize);
  return __builtin_shuffle(whole, index);
}

inline bool same_flips(const PauliString& one, const PauliString& other) {
  return one.row_x == other.row_x && one.lane_x == other.lane_x && one.odd == other.odd;
}

inline bool is_negative(int64_t row, const PauliString& string) { return __builtin_parityll(row & string.row_z); }

// Re or Im of conj(state) x the flipped state, for a tile of rows.
template <class Real>
inline void overlaps(const Real* rows, int64_t tile, int bits, int slice, const PauliString& string,
                     Vector<Real>* made) {
  for (int64_t row = 0; row < 1 << bits; ++row) {
    const int64_t number = tile << bits | row;
    const Real* own = rows + number * kRow<Real>;
    const Real* other = rows + (number ^ string.row_x) * kRow<Real>;
    const Vector<Real> re = load<Real>(own + slice * kVector<Real>);
    const Vector<Real> im = load<Real>(own + kLanes<Real> + slice * kVector<Real>);
    const Vector<Real> x = load_flipped(other, slice, string.lane_x);
    const Vector<Real> y = load_flipped(other + kLanes<Real>, slice, string.lane_x);
    made[row] = string.odd ? re * y - im * x : re * x + im * y;
  }
}

// Strings with the same flips are neighbours; [first, last) of rows are whole tiles.
template <class Real>
void expect(const Real* rows, int bits, int64_t first, int64_t last, const PauliString* strings, int count,
            double* sums) {
  const int tile_bits = bits < kTileBits ? bits : kTileBits;
  for (int begin = 0, end = 0; begin < count; begin = end) {
    for (end = begin; end < count && same_flips(strings[begin], strings[end]);) ++end;
    std::vector<Vector<Real>> partial(end - begin);
    for (int slice = 0; slice < kSlices; ++slice) {
      for (int64_t at = first >> tile_bits; at < last >> tile_bits; at += kTilesASum) {
        const int64_t stop = at + kTilesASum < last >> tile_bits ? at + kTilesASum : last >> tile_bits;
        for (auto& each : partial) each = Vector<Real>{};
        for (int64_t tile = at; tile < stop; ++tile) {
          Vector<Real> made[1 << kTileBits];
          overlaps(rows, tile, tile_bits, slice, strings[begin], made);
          walsh<Real>(made, tile_bits);
          for (int each = begin; each < end; ++each) {
            const Vector<Real> part = made[strings[each].row_z & ((1 << tile_bits) - 1)];
            partial[each - begin] += is_negative(tile << tile_bits, strings[each]) ? -part : part;
          }
        }
        for (int each = begin; each < end; ++each)
          for (int lane = 0; lane < kVector<Real>; ++lane)
            sums[each * kLanes<Real> + slice * kVector<Real> + lane] += partial[each - begin][lane];
      }
    }
  }
}

template <class Real>
void weigh(const Real* rows, Real* costates, int bits, int64_t first, int64_t last, const PauliString* strings,
           int count, const Real* weights) {
  const int tile_bits = bits < kTileBits ? bits : kTileBits;
  std::memset(costates + first * kRow<Real>, 0, (last - first) * kRow<Real> * sizeof(Real));
  for (int begin = 0, end = 0; begin < count; begin = end) {
    const PauliString& flips = strings[begin];
    for (end = begin; end < count && same_flips(flips, strings[end]);) ++end;
    for (int64_t tile = first >> tile_bits; tile < last >> tile_bits; ++tile) {
      for (int slice = 0; slice < kSlices; ++slice) {
        Vector<Real> factor[1 << kTileBits] = {};
        for (int each = begin; each < end; ++each) {
          const Vector<Real> part = load<Real>(weights + each * kLanes<Real> + slice * kVector<Real>);
          auto& to = factor[strings[each].row_z & ((1 << tile_bits) - 1)];
          to += is_negative(tile << tile_bits, strings[each]) ? -part : part;
        }
        walsh<Real>(factor, tile_bits);
        for (int64_t row = 0; row < 1 << tile_bits; ++row) {
          const int64_t number = tile << tile_bits | row;
          const Real* from = rows + (number ^ flips.row_x) * kRow<Real>;
          const Vector<Real> x = load_flipped(from, slice, flips.lane_x) * factor[row];
          const Vector<Real> y = load_flipped(from + kLanes<Real>, slice, flips.lane_x) * factor[row];
          Real* to = costates + number * kRow<Real> + slice * kVector<Real>;
          store<Real>(to, load<Real>(to) + (flips.odd ? y : x));
          store<Real>(to + kLanes<Real>, load<Real>(to + kLanes<Real>) + (flips.odd ? -x : y));
        }
      }
    }
  }
}

}  // namespace QMLJOB_ISA
}  // namespace qmljob
