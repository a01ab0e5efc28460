// What is simulated, as engines/lightcone/native.py has compiled it: read once, and checked, so that no plan can make the
// loops leave their arrays.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels.h"

namespace qmljob {

constexpr int kPlanVersion = 1;
constexpr int kMaxQubits = 36;
constexpr int kMaxPlaces = 10;
constexpr int kMaxLocals = 16;

enum class Source { kConstant = 0, kWeights = 1, kFeatures = 2 };

struct Block {
  int width;
  Source source;   // kFeatures: a matrix for each example
  int64_t offset;  // of its first entry among the matrices
  int64_t entries() const { return int64_t{1} << (2 * width); }
};

// A block on local bits of the row's number, or (block < 0) an exchange of the lane's bits with some of them.
struct Step {
  int block;
  std::array<int, kMaxPlaces> places;
};

// Steps that need only some bits of the row's number: rows that differ in these are taken to a cache together.
struct Sweep {
  std::vector<int> locals;  // ascending
  std::vector<Step> steps;
};

// A block on one qubit of |0...0>; `bit` of the amplitude's number, after the sweeps that the preparation stands for.
struct Prepared {
  int bit, block;
};

struct Plan {
  int lane_bits;  // 0: a lane is an example
  int qubits, row_bits;
  int prepared_sweeps;  // of `sweeps`, whose blocks are `prepared`
  int64_t shared, own;  // entries of matrices that all examples share, and of those that each has of its own
  int readouts;
  std::vector<Block> blocks;
  std::vector<Sweep> sweeps;
  std::vector<Prepared> prepared;
  std::vector<PauliString> strings;
};

// Fills `plan`; returns what is wrong with the numbers, or nothing.
std::string read_plan(const std::vector<int64_t>& numbers, int lane_bits, Plan* plan);

}  // namespace qmljob
