// Matrices on rows: forward, and backward with their gradient.
#pragma once

#include <vector>

#include "simd.h"

namespace qmljob {
namespace QMLJOB_ISA {

constexpr int kMaxUnrolled = 4;
constexpr int kMaxWidth = 10;

// Multiplies the rows at base + offsets by a matrix, in place.
template <class Real, int Width, bool ByLane>
inline void multiply(Real* base, const int64_t* offsets, const Real* matrix) {
  constexpr int kSize = 1 << Width;
  constexpr int kStep = kSums < kSize ? kSums : kSize;
  using V = Vector<Real>;
  for (int slice = 0; slice < kSlices; ++slice) {
    Real* at = base + slice * kVector<Real>;
    V re[kSize], im[kSize];
#pragma GCC unroll 16
    for (int c = 0; c < kSize; ++c) {
      re[c] = load<Real>(at + offsets[c]);
      im[c] = load<Real>(at + offsets[c] + kLanes<Real>);
    }
#pragma GCC unroll 1
    for (int first = 0; first < kSize; first += kStep) {
      V sum_re[kStep] = {}, sum_im[kStep] = {};
#pragma GCC unroll 16
      for (int c = 0; c < kSize; ++c) {
#pragma GCC unroll 4
        for (int r = 0; r < kStep; ++r) {
          const int64_t number = 2 * ((first + r) * kSize + c);
          const V a = entry<Real, ByLane>(matrix, number, slice), b = entry<Real, ByLane>(matrix, number + 1, slice);
          sum_re[r] += a * re[c];
          sum_im[r] += a * im[c];
          sum_re[r] -= b * im[c];
          sum_im[r] += b * re[c];
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kStep; ++r) {
        store<Real>(at + offsets[first + r], sum_re[r]);
        store<Real>(at + offsets[first + r] + kLanes<Real>, sum_im[r]);
      }
    }
  }
}

template <class Real, int Width, bool ByLane>
void apply_unrolled(Real* rows, int bits, const int* places, const Real* matrix) {
  int64_t offsets[1 << Width];
  offsets_of<Real>(Width, places, offsets);
  Bases bases(Width, places);
  for (int64_t left = int64_t{1} << (bits - Width); left > 0; --left) {
    multiply<Real, Width, ByLane>(rows + bases.next() * kRow<Real>, offsets, matrix);
  }
}

// Adds costate x conj(state) over some bases to the gradient's entries [a, a + A) x [b, b + B).
template <class Real, int A, int B>
inline void add_outer(const Real* states, const Real* costates, const int64_t* bases, int count, const int64_t* offsets,
                      int size, int a, int b, int slice, Real* gradient) {
  using V = Vector<Real>;
  V re[A][B] = {}, im[A][B] = {};
  for (int each = 0; each < count; ++each) {
    const Real* left = costates + bases[each] + slice * kVector<Real>;
    const Real* right = states + bases[each] + slice * kVector<Real>;
#pragma GCC unroll 2
    for (int j = 0; j < B; ++j) {
      const V x = load<Real>(right + offsets[b + j]), y = load<Real>(right + offsets[b + j] + kLanes<Real>);
#pragma GCC unroll 4
      for (int i = 0; i < A; ++i) {
        const V u = load<Real>(left + offsets[a + i]), v = load<Real>(left + offsets[a + i] + kLanes<Real>);
        re[i][j] += u * x;
        im[i][j] += v * x;
        re[i][j] += v * y;
        im[i][j] -= u * y;
      }
    }
  }
  for (int i = 0; i < A; ++i) {
    for (int j = 0; j < B; ++j) {
      Real* to = gradient + ((a + i) * size + b + j) * kRow<Real> + slice * kVector<Real>;
      store<Real>(to, load<Real>(to) + re[i][j]);
      store<Real>(to + kLanes<Real>, load<Real>(to + kLanes<Real>) + im[i][j]);
    }
  }
}

template <class Real, int Width, bool ByLane>
void undo_unrolled(Real* states, Real* costates, int bits, const int* places, const Real* adjoint, Real* gradient) {
  constexpr int kSize = 1 << Width;
  constexpr int kA = kSums < kSize ? kSums : kSize;
  constexpr int kB = 2;
  // Bases at a time: as many as leave their rows, of both vectors, in the innermost cache.
  constexpr int kCount = Width >= 4 ? 4 : 8;
  int64_t offsets[kSize], at[kCount];
  offsets_of<Real>(Width, places, offsets);
  Bases bases(Width, places);
  int64_t left = int64_t{1} << (bits - Width);
  while (left > 0) {
    const int count = left < kCount ? static_cast<int>(left) : kCount;
    left -= count;
    for (int each = 0; each < count; ++each) {
      at[each] = bases.next() * kRow<Real>;
      multiply<Real, Width, ByLane>(states + at[each], offsets, adjoint);
    }
    if (gradient != nullptr) {
      for (int slice = 0; slice < kSlices; ++slice)
        for (int a = 0; a < kSize; a += kA)
          for (int b = 0; b < kSize; b += kB)
            add_outer<Real, kA, kB>(states, costates, at, count, offsets, kSize, a, b, slice, gradient);
    }
    for (int each = 0; each < count; ++each) multiply<Real, Width, ByLane>(costates + at[each], offsets, adjoint);
  }
}

// Any width: gates on more than four qubits are rare, and their matrices large.
template <class Real, bool ByLane>
void multiply_wide(Real* base, int size, const int64_t* offsets, const Real* matrix, Real* scratch) {
  for (int c = 0; c < size; ++c) std::memcpy(scratch + c * kRow<Real>, base + offsets[c], kRow<Real> * sizeof(Real));
  for (int slice = 0; slice < kSlices; ++slice) {
    const Real* from = scratch + slice * kVector<Real>;
    for (int r = 0; r < size; ++r) {
      Vector<Real> re = {}, im = {};
      for (int c = 0; c < size; ++c) {
        const int64_t number = 2 * (int64_t{r} * size + c);
        const auto a = entry<Real, ByLane>(matrix, number, slice), b = entry<Real, ByLane>(matrix, number + 1, slice);
        const auto x = load<Real>(from + c * kRow<Real>), y = load<Real>(from + c * kRow<Real> + kLanes<Real>);
        re += a * x;
        im += a * y;
        re -= b * y;
        im += b * x;
      }
      store<Real>(base + offsets[r] + slice * kVector<Real>, re);
      store<Real>(base + offsets[r] + slice * kVector<Real> + kLanes<Real>, im);
    }
  }
}

template <class Real, bool ByLane>
void undo_wide(Real* states, Real* costates, int bits, int width, const int* places, const Real* adjoint,
               Real* gradient) {
  const int size = 1 << width;
  std::vector<int64_t> offsets(size);
  std::vector<Real> scratch(static_cast<size_t>(size) * kRow<Real>);
  offsets_of<Real>(width, places, offsets.data());
  Bases bases(width, places);
  for (int64_t left = int64_t{1} << (bits - width); left > 0; --left) {
    const int64_t at = bases.next() * kRow<Real>;
    multiply_wide<Real, ByLane>(states + at, size, offsets.data(), adjoint, scratch.data());
    if (costates == nullptr) continue;
    for (int slice = 0; gradient != nullptr && slice < kSlices; ++slice)
      for (int a = 0; a < size; a += 2)
        for (int b = 0; b < size; b += 2)
          add_outer<Real, 2, 2>(states, costates, &at, 1, offsets.data(), size, a, b, slice, gradient);
    multiply_wide<Real, ByLane>(costates + at, size, offsets.data(), adjoint, scratch.data());
  }
}

template <class Real, bool ByLane>
void apply_any(Real* rows, int bits, int width, const int* places, const Real* matrix) {
  switch (width) {
    case 1: return apply_unrolled<Real, 1, ByLane>(rows, bits, places, matrix);
    case 2: return apply_unrolled<Real, 2, ByLane>(rows, bits, places, matrix);
    case 3: if constexpr (!ByLane) return apply_unrolled<Real, 3, ByLane>(rows, bits, places, matrix); break;
    case 4: if constexpr (!ByLane) return apply_unrolled<Real, 4, ByLane>(rows, bits, places, matrix); break;
  }
  undo_wide<Real, ByLane>(rows, nullptr, bits, width, places, matrix, nullptr);
}

template <class Real, bool ByLane>
void undo_any(Real* states, Real* costates, int bits, int width, const int* places, const Real* adjoint,
              Real* gradient) {
  switch (width) {
    case 1: return undo_unrolled<Real, 1, ByLane>(states, costates, bits, places, adjoint, gradient);
    case 2: return undo_unrolled<Real, 2, ByLane>(states, costates, bits, places, adjoint, gradient);
    case 3:
      if constexpr (!ByLane) return undo_unrolled<Real, 3, ByLane>(states, costates, bits, places, adjoint, gradient);
      break;
    case 4:
      if constexpr (!ByLane) return undo_unrolled<Real, 4, ByLane>(states, costates, bits, places, adjoint, gradient);
      break;
  }
  undo_wide<Real, ByLane>(states, costates, bits, width, places, adjoint, gradient);
}

}  // namespace QMLJOB_ISA
}  // namespace qmljob
