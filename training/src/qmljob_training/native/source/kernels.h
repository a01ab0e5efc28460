// What a processor's instructions are used for: loops over rows of amplitudes, made once for each instruction set.
//
// A row is kLineBytes of real parts, then as many of imaginary parts: its lanes are sixteen amplitudes of one state
// vector (eight in double precision), or one amplitude of as many examples. No loop here mixes lanes, except `exchange`
// and the observables; so a gate costs the same on whichever qubit it acts.
#pragma once

#include <cstdint>

namespace qmljob {

constexpr int kLineBytes = 64;

template <class Real>
constexpr int kLanes = kLineBytes / static_cast<int>(sizeof(Real));

// Numbers of type Real in a row.
template <class Real>
constexpr int kRow = 2 * kLanes<Real>;

// A Pauli string: it takes amplitude i ^ x to amplitude i, with the sign of the parity of i & z.
struct PauliString {
  int readout;
  int64_t row_x, row_z;
  int lane_x, lane_z;
  bool odd;  // an odd number of Y: a factor -i
};

template <class Real>
struct Kernels {
  // Applies a matrix to 2**bits rows. `places`: the row's bits that the matrix' index is made of, the most significant
  // first. `matrix`: row by row, real and imaginary part in turns; each kLanes times where it differs by lane.
  void (*apply)(Real* rows, int bits, int width, const int* places, const Real* matrix, bool by_lane);
  // Undoes a matrix, whose adjoint is given, on states and costates; adds costate x conj(state) between the two to
  // `gradient`, lane by lane (real parts, then imaginary parts for each entry), unless that is null.
  void (*undo)(Real* states, Real* costates, int bits, int width, const int* places, const Real* adjoint, bool by_lane,
               Real* gradient);
  // Exchanges the bits of the lane's number with as many bits of the row's: the least significant first.
  void (*exchange)(Real* rows, int bits, const int* places);
  // Makes a product state. `factors`: for each bit of the row's number the amplitudes of 0 and 1, as rows. Row 0 is given.
  void (*prepare)(Real* rows, int bits, const Real* factors);
  // Adds, lane by lane, the expectation of strings over tiles of rows [first, last) to sums [strings][kLanes].
  void (*expect)(const Real* rows, int bits, int64_t first, int64_t last, const PauliString* strings, int count,
                 double* sums);
  // Writes sum_s weights[s] P_s |state> to the costate's rows [first, last); weights [strings][kLanes] have the lanes'
  // signs in them.
  void (*weigh)(const Real* rows, Real* costates, int bits, int64_t first, int64_t last, const PauliString* strings,
                int count, const Real* weights);
};

// The best set of loops for this processor; its name is what decides the bits.
template <class Real>
const Kernels<Real>& kernels();
const char* instruction_set();

}  // namespace qmljob
