// Vectors of the width that QMLJOB_VECTOR_BYTES says, by the compiler's own vector extension.
#pragma once

#include <cstring>

#include "kernels.h"

namespace qmljob {
namespace QMLJOB_ISA {

constexpr int kVectorBytes = QMLJOB_VECTOR_BYTES;
constexpr int kSlices = kLineBytes / kVectorBytes;
// Rows of a matrix that are computed at a time: as many as there are registers for their sums.
constexpr int kSums = kVectorBytes == 64 ? 4 : 2;

template <class Real>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
  typedef int32_t Index __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
  typedef int64_t Index __attribute__((vector_size(kVectorBytes)));
};
template <class Real>
using Vector = typename VectorOf<Real>::Type;
template <class Real>
constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(Real));

template <class Real>
inline Vector<Real> load(const Real* from) {
  Vector<Real> made;
  std::memcpy(&made, from, sizeof made);
  return made;
}
template <class Real>
inline void store(Real* to, Vector<Real> value) {
  std::memcpy(to, &value, sizeof value);
}
template <class Real>
inline Vector<Real> spread(Real value) {
  return Vector<Real>{} + value;
}
// An entry of a matrix: the same in all lanes, or its own in each.
template <class Real, bool ByLane>
inline Vector<Real> entry(const Real* matrix, int64_t number, int slice) {
  if constexpr (ByLane) return load<Real>(matrix + number * kLanes<Real> + slice * kVector<Real>);
  return spread<Real>(matrix[number]);
}

// Walks over the row numbers whose bits at some places are zero.
class Bases {
 public:
  Bases(int width, const int* places) {
    for (int each = 0; each < width; ++each) mask_ |= int64_t{1} << places[each];
  }
  int64_t next() {
    const int64_t found = base_;
    base_ = ((base_ | mask_) + 1) & ~mask_;
    return found;
  }

 private:
  int64_t mask_ = 0, base_ = 0;
};

// The offset in numbers, from a base, of each value of the matrix' index.
template <class Real>
inline void offsets_of(int width, const int* places, int64_t* offsets) {
  for (int64_t index = 0; index < int64_t{1} << width; ++index) {
    int64_t row = 0;
    for (int each = 0; each < width; ++each) row |= ((index >> (width - 1 - each)) & 1) << places[each];
    offsets[index] = row * kRow<Real>;
  }
}

}  // namespace QMLJOB_ISA
}  // namespace qmljob
