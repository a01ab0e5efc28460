// The TensorFlow ops: they check shapes and hand over to Simulation.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "simulate.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/threadpool.h"

namespace qmljob {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;

REGISTER_OP("QmljobValues")
    .Attr("Real: {float, double}")
    .Attr("plan: list(int)")
    .Attr("keep: int")
    .Input("shared: Real")
    .Input("own: Real")
    .Input("initial: Real")
    .Input("coefficients: double")
    .Output("values: Real")
    .Output("states: Real")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->UnknownShapeOfRank(2));
      context->set_output(1, context->UnknownShapeOfRank(1));
      return tensorflow::Status();
    })
    .Doc("Expectation values [batch, readouts]; state vectors, up to `keep` bytes, for QmljobGradient.");

REGISTER_OP("QmljobGradient")
    .Attr("Real: {float, double}")
    .Attr("plan: list(int)")
    .Attr("of_features: bool")
    .Input("shared: Real")
    .Input("own: Real")
    .Input("initial: Real")
    .Input("coefficients: double")
    .Input("upstream: Real")
    .Input("states: Real")
    .Output("gradient: Real")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      bool of_features;
      TF_RETURN_IF_ERROR(context->GetAttr("of_features", &of_features));
      context->set_output(0, context->input(of_features ? 1 : 0));
      return tensorflow::Status();
    })
    .Doc("The gradient of sum(upstream * values) in the matrices: shared [entries, 2], or own [batch, entries, 2].");

template <class Real>
class Op : public tensorflow::OpKernel {
 public:
  explicit Op(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<int64_t> numbers;
    OP_REQUIRES_OK(context, context->GetAttr("plan", &numbers));
    const std::string wrong = read_plan(numbers, __builtin_ctz(kLanes<Real>), &plan_);
    OP_REQUIRES(context, wrong.empty(), InvalidArgument("the plan is wrong: ", wrong));
  }

 protected:
  // Checks the inputs that both ops have.
  tensorflow::Status read(OpKernelContext* context, Input<Real>* input) const {
    const Tensor &shared = context->input(0), &own = context->input(1), &initial = context->input(2);
    const Tensor& coefficients = context->input(3);
    if (shared.shape() != TensorShape({plan_.shared, 2}))
      return InvalidArgument("shared is ", shared.shape().DebugString(), ", the plan has ", plan_.shared, " entries");
    if (own.dims() != 3 || own.dim_size(1) != plan_.own || own.dim_size(2) != 2)
      return InvalidArgument("own is ", own.shape().DebugString(), ", the plan has ", plan_.own, " entries an example");
    const int64_t amplitudes = int64_t{1} << plan_.qubits;
    if (initial.dims() != 2 || initial.dim_size(1) != 2 || (initial.dim_size(0) != 0 && initial.dim_size(0) != amplitudes))
      return InvalidArgument("initial is ", initial.shape().DebugString(), ", neither empty nor of ", amplitudes);
    if (initial.dim_size(0) != 0 && plan_.prepared_sweeps != 0)
      return InvalidArgument("the plan prepares qubits, so initial must be empty");
    if (coefficients.shape() != TensorShape({static_cast<int64_t>(plan_.strings.size())}))
      return InvalidArgument("coefficients is ", coefficients.shape().DebugString(), " for ", plan_.strings.size());
    auto* workers = context->device()->tensorflow_cpu_worker_threads();
    *input = {own.dim_size(0), shared.flat<Real>().data(), own.flat<Real>().data(),
              initial.dim_size(0) ? initial.flat<Real>().data() : nullptr, coefficients.flat<double>().data(),
              workers->num_threads, [workers](int64_t count, const std::function<void(int64_t)>& task) {
                if (count == 1 || workers->num_threads == 1) {
                  for (int64_t each = 0; each < count; ++each) task(each);
                  return;
                }
                workers->workers->ParallelFor(count, tensorflow::thread::ThreadPool::SchedulingParams(
                    tensorflow::thread::ThreadPool::SchedulingStrategy::kFixedBlockSize, absl::nullopt, 1),
                    [&task](int64_t first, int64_t end) {
                      for (int64_t each = first; each < end; ++each) task(each);
                    });
              }};
    return tensorflow::Status();
  }

  Plan plan_;
};

template <class Real>
class ValuesOp : public Op<Real> {
 public:
  explicit ValuesOp(OpKernelConstruction* context) : Op<Real>(context) {
    OP_REQUIRES_OK(context, context->GetAttr("keep", &keep_));
  }

  void Compute(OpKernelContext* context) override {
    Input<Real> input;
    OP_REQUIRES_OK(context, this->read(context, &input));
    const Simulation<Real> simulation(this->plan_, input);
    const int64_t numbers = simulation.state_numbers();
    const bool kept = numbers * static_cast<int64_t>(sizeof(Real)) <= keep_;
    Tensor *values = nullptr, *states = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({input.batch, this->plan_.readouts}), &values));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({kept ? numbers : 0}), &states));
    Real* const to = kept ? states->flat<Real>().data() : nullptr;
    if (kept) advise_large_pages(to, numbers * sizeof(Real));
    simulation.values(values->flat<Real>().data(), to);
  }

 private:
  int64_t keep_;
};

template <class Real>
class GradientOp : public Op<Real> {
 public:
  explicit GradientOp(OpKernelConstruction* context) : Op<Real>(context) {
    OP_REQUIRES_OK(context, context->GetAttr("of_features", &of_features_));
  }

  void Compute(OpKernelContext* context) override {
    Input<Real> input;
    OP_REQUIRES_OK(context, this->read(context, &input));
    const Tensor &upstream = context->input(4), &states = context->input(5);
    OP_REQUIRES(context, upstream.shape() == TensorShape({input.batch, this->plan_.readouts}),
                InvalidArgument("upstream is ", upstream.shape().DebugString(), ", not ", input.batch, " x ",
                                this->plan_.readouts));
    const Simulation<Real> simulation(this->plan_, input);
    const bool kept = states.NumElements() != 0;
    OP_REQUIRES(context, !kept || states.NumElements() == simulation.state_numbers(),
                InvalidArgument("states has ", states.NumElements(), " numbers, not ", simulation.state_numbers()));
    Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(of_features_ ? 1 : 0).shape(), &gradient));
    simulation.gradient(of_features_ ? Source::kFeatures : Source::kWeights, upstream.flat<Real>().data(),
                        kept ? states.flat<Real>().data() : nullptr, gradient->flat<Real>().data());
  }

 private:
  bool of_features_;
};

#define REGISTER(REAL)                                                                                             \
  REGISTER_KERNEL_BUILDER(Name("QmljobValues").Device(tensorflow::DEVICE_CPU).TypeConstraint<REAL>("Real"),        \
                          ValuesOp<REAL>);                                                                         \
  REGISTER_KERNEL_BUILDER(Name("QmljobGradient").Device(tensorflow::DEVICE_CPU).TypeConstraint<REAL>("Real"),      \
                          GradientOp<REAL>)
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace
}  // namespace qmljob

extern "C" const char* qmljob_instruction_set() { return qmljob::instruction_set(); }
