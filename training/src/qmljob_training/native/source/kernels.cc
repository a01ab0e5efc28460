// Compiled once for each instruction set, with QMLJOB_ISA its name and QMLJOB_VECTOR_BYTES the width of its vectors.
#include "kernels.h"

#include <vector>

#include "gates.h"
#include "pauli.h"

namespace qmljob {
namespace QMLJOB_ISA {

template <class Real>
void apply(Real* rows, int bits, int width, const int* places, const Real* matrix, bool by_lane) {
  (by_lane ? apply_any<Real, true> : apply_any<Real, false>)(rows, bits, width, places, matrix);
}

template <class Real>
void undo(Real* states, Real* costates, int bits, int width, const int* places, const Real* adjoint, bool by_lane,
          Real* gradient) {
  (by_lane ? undo_any<Real, true> : undo_any<Real, false>)(states, costates, bits, width, places, adjoint, gradient);
}

// Transposes a square of vectors: exchanges bit after bit of the vector's number and the lane's.
template <class Real>
inline void transpose(Vector<Real>* square) {
  constexpr int kSize = kVector<Real>;
  if constexpr (kSize > 1) {
#pragma GCC unroll 4
    for (int step = 1; step < kSize; step *= 2) {
      typename VectorOf<Real>::Index low = {}, high = {};
      for (int lane = 0; lane < kSize; ++lane) {
        low[lane] = lane & step ? kSize + (lane ^ step) : lane;
        high[lane] = lane & step ? kSize + lane : lane ^ step;
      }
#pragma GCC unroll 16
      for (int row = 0; row < kSize; ++row) {
        if (row & step) continue;
        const Vector<Real> one = square[row], other = square[row | step];
        square[row] = __builtin_shuffle(one, other, low);
        square[row | step] = __builtin_shuffle(one, other, high);
      }
    }
  }
}

template <class Real>
void exchange(Real* rows, int bits, const int* places) {
  constexpr int kSize = kVector<Real>, kTotal = kLanes<Real>;
  const int count = __builtin_ctz(kTotal);
  int64_t offsets[kTotal];
  for (int index = 0; index < kTotal; ++index) {
    offsets[index] = 0;
    for (int each = 0; each < count; ++each)
      offsets[index] |= static_cast<int64_t>(index >> each & 1) << places[each];
    offsets[index] *= kRow<Real>;
  }
  Bases bases(count, places);
  for (int64_t left = int64_t{1} << (bits - count); left > 0; --left) {
    Real* base = rows + bases.next() * kRow<Real>;
    for (Real* part : {base, base + kTotal}) {
      for (int i = 0; i < kSlices; ++i) {
        for (int j = i; j < kSlices; ++j) {
          Vector<Real> one[kSize], other[kSize];
          for (int row = 0; row < kSize; ++row) {
            one[row] = load<Real>(part + offsets[i * kSize + row] + j * kSize);
            other[row] = load<Real>(part + offsets[j * kSize + row] + i * kSize);
          }
          transpose<Real>(one);
          transpose<Real>(other);
          for (int row = 0; row < kSize; ++row) {
            store<Real>(part + offsets[j * kSize + row] + i * kSize, one[row]);
            store<Real>(part + offsets[i * kSize + row] + j * kSize, other[row]);
          }
        }
      }
    }
  }
}

template <class Real>
void prepare(Real* rows, int bits, const Real* factors) {
  for (int bit = 0; bit < bits; ++bit) {
    const int64_t half = int64_t{1} << bit;
    const Real* factor = factors + 2 * bit * kRow<Real>;
    for (int64_t row = 0; row < half; ++row) {
      for (int slice = 0; slice < kSlices; ++slice) {
        Real* low = rows + row * kRow<Real> + slice * kVector<Real>;
        Real* high = low + half * kRow<Real>;
        const Real* of = factor + slice * kVector<Real>;
        const auto x = load<Real>(low), y = load<Real>(low + kLanes<Real>);
        const auto a = load<Real>(of), b = load<Real>(of + kLanes<Real>);
        const auto c = load<Real>(of + kRow<Real>), d = load<Real>(of + kRow<Real> + kLanes<Real>);
        store<Real>(low, a * x - b * y);
        store<Real>(low + kLanes<Real>, a * y + b * x);
        store<Real>(high, c * x - d * y);
        store<Real>(high + kLanes<Real>, c * y + d * x);
      }
    }
  }
}

template <class Real>
const Kernels<Real>& table() {
  static const Kernels<Real> made = {apply<Real>,   undo<Real>,   exchange<Real>,
                                     prepare<Real>, expect<Real>, weigh<Real>};
  return made;
}
template const Kernels<float>& table<float>();
template const Kernels<double>& table<double>();

}  // namespace QMLJOB_ISA
}  // namespace qmljob
