// Simulates a batch by a plan: values, and the gradient in the matrices by the adjoint method (Jones and Gacon 2020,
// arXiv:2009.02823), which undoes blocks on state and costate instead of storing the evolution.
//
// What is summed, and in which order, depends on the plan and the batch alone, never on the number of threads.
#pragma once

#include <functional>
#include <vector>

#include "memory.h"
#include "plan.h"

namespace qmljob {

// Calls a function with 0 .. count - 1, on as many threads as it likes.
using Parallel = std::function<void(int64_t count, const std::function<void(int64_t)>& task)>;

// A call's input. Matrices have real and imaginary parts in turns, row by row.
template <class Real>
struct Input {
  int64_t batch;
  const Real* shared;        // [plan.shared][2]
  const Real* own;           // [batch][plan.own][2]
  const Real* initial;       // [2**qubits][2], or null for |0...0>
  const double* coefficients;  // of the plan's strings
  int threads;
  Parallel parallel;
};

template <class Real>
class Simulation {
 public:
  Simulation(const Plan& plan, const Input<Real>& input);

  // Numbers of type Real in the state vectors of the batch, which `states` may keep between the two calls.
  int64_t state_numbers() const { return units_ * unit_numbers_; }
  // Writes values [batch][readouts]; `states` may be null.
  void values(Real* values, Real* states) const;
  // Writes the gradient of sum(upstream * values): [shared][2] in the weights' matrices, or [batch][own][2] in the
  // features'. `states` are those of `values`, or null: then they are computed anew.
  void gradient(Source source, const Real* upstream, const Real* states, Real* gradient) const;

 private:
  struct Unit;  // what is simulated at a time: an example, or as many as there are lanes

  template <class Task>
  void for_units(int64_t groups, Task task) const;
  Unit unit(int64_t number, bool adjoint) const;
  int64_t example(const Unit& unit, int lane) const;
  const Real* matrix(const Unit& unit, const Block& block, bool* by_lane) const;
  void start(const Unit& unit, Real* rows) const;
  void forward(const Unit& unit, Real* rows) const;
  void expect(const Unit& unit, const Real* rows, Real* values) const;
  void weigh(const Unit& unit, const Real* upstream, const Real* rows, Real* costates) const;
  void backward(const Unit& unit, Source source, Real* rows, Real* costates, double* sums) const;
  void undo(const Unit& unit, const Sweep& sweep, int first, Source source, Real* rows, Real* costates,
            Real* gradients) const;
  void collect(const Sweep& sweep, int first, Source source, const Real* gradients, double* sums) const;
  void write_features(const Unit& unit, const double* sums, Real* gradient) const;

  const Plan& plan_;
  const Input<Real>& input_;
  const Kernels<Real>& kernels_;
  int64_t units_, unit_numbers_, groups_;
  Buffer<Real> adjoint_;
};

}  // namespace qmljob
