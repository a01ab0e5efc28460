"""The schedules: hypothesis draws what happens, in any order, and makes what breaks as short as it can."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from support.injector.faults import FaultKind
from support.pod_documents import DISRUPTIONS
from support.schedules.stage import CODES, NODES, SHAPES, TROUBLE, LeaseFault, Stage

_OPERATORS = st.integers(0, 1)
_WHILE = st.sampled_from([0.5, 5.0, 20.0, 120.0])
_SKEWS = st.floats(-30.0, 30.0).map(lambda seconds: round(seconds, 1))


class Schedules(RuleBasedStateMachine):
    """What may happen to a job, its cluster and its two operators. At the end all is well, and the job ends."""

    def __init__(self) -> None:
        """Nothing runs before the first rule."""
        super().__init__()
        self.stage: Stage | None = None

    @initialize(seed=st.integers(0, 999), shape=st.sampled_from(SHAPES), skews=st.tuples(_SKEWS, _SKEWS))
    def begin(self, seed: int, shape: dict[str, int], skews: tuple[float, float]) -> None:
        """A job is made, and two operators start whose clocks differ."""
        self.stage = Stage(seed, shape)
        for operator, skew in zip(self.stage.operators, skews, strict=True):
            operator.skew = skew
        self.on.pass_time(2.0)
        self.on.start_pods()
        self.on.pass_time(1.0)

    @property
    def on(self) -> Stage:
        """The stage."""
        assert self.stage is not None
        return self.stage

    @rule(seconds=st.sampled_from([0.02, 0.3, 1.0, 5.0, 20.0, 70.0, 300.0]))
    def time_passes(self, seconds: float) -> None:
        """Nothing but time."""
        self.on.pass_time(seconds)

    @rule(share=st.sampled_from([0.4, 1.0, 1.0]), seconds=st.sampled_from([0.1, 3.0, 20.0]))
    def pods_start(self, share: float, seconds: float) -> None:
        """Kubelets start pods: all, or some while others are slow."""
        self.on.start_pods(share)
        self.on.pass_time(seconds)

    @rule(code=st.sampled_from(CODES), late=st.sampled_from([0.0, 0.0, 5.0, 40.0]), everyone=st.booleans())
    def pods_end(self, code: int, late: float, everyone: bool) -> None:
        """Programs end; a kubelet may say so late."""
        self.on.end_pod(code, late, everyone=everyone)

    @rule(how=st.sampled_from(["delete", "vanish", *sorted(DISRUPTIONS)]))
    def a_pod_is_taken(self, how: str) -> None:
        """The cluster or somebody takes a pod away."""
        self.on.take_pod(how)

    @rule(seconds=st.sampled_from([0.1, 5.0]))
    def pods_go(self, seconds: float) -> None:
        """Terminating pods go; until this happens they are stuck."""
        self.on.let_go()
        self.on.pass_time(seconds)

    @rule(node=st.sampled_from(NODES), ready=st.booleans())
    def a_node_changes(self, node: str, ready: bool) -> None:
        """A node is lost, or comes back."""
        self.on.set_node(node, ready=ready)

    @rule(suspend=st.booleans())
    def somebody_suspends(self, suspend: bool) -> None:
        """A user suspends the job, or resumes it."""
        self.on.edit(suspend=suspend)

    @rule(replicas=st.integers(1, 4))
    def somebody_scales(self, replicas: int) -> None:
        """A user scales the workers."""
        self.on.scale(replicas)

    @rule(seconds=st.sampled_from([0.0, 0.05, 10.0]))
    def somebody_makes_it_anew(self, seconds: float) -> None:
        """A user deletes the job and makes it again under the same name."""
        self.on.delete_job()
        self.on.pass_time(seconds)
        self.on.create_job()

    @rule(number=_OPERATORS)
    def an_operator_is_killed(self, number: int) -> None:
        """An operator dies, and another one starts in its place."""
        self.on.kill(number)

    @rule(
        number=_OPERATORS,
        kinds=st.sets(st.sampled_from(TROUBLE), max_size=3),
        latency=st.sampled_from([0.01, 0.5, 2.0]),
        seconds=_WHILE,
    )
    def the_network_fails(self, number: int, kinds: set[FaultKind], latency: float, seconds: float) -> None:
        """Requests of an operator fail, or take long, for a while."""
        self.on.trouble(number, tuple(kind for kind in TROUBLE if kind in kinds), latency, seconds)

    @rule(number=_OPERATORS, how=st.sampled_from(["stall", "skip", "relist"]), seconds=_WHILE)
    def a_watch_fails(self, number: int, how: str, seconds: float) -> None:
        """An operator's watches fall silent for a while, lose events, or begin anew with a list."""
        self.on.disturb_watches(number, how, seconds)

    @rule(number=_OPERATORS, fault=st.sampled_from(LeaseFault), seconds=_WHILE)
    def a_lease_is_lost(self, number: int, fault: LeaseFault, seconds: float) -> None:
        """An operator can't renew its lease for a while, in the middle of whatever it writes."""
        self.on.lose_lease(number, fault, seconds)

    @rule(number=_OPERATORS, skew=_SKEWS)
    def a_clock_jumps(self, number: int, skew: float) -> None:
        """An operator's clock is set."""
        self.on.operators[number].skew = skew

    def teardown(self) -> None:
        """Everything works again: the job ends, and every promise was kept."""
        if self.stage is None:
            return
        try:
            self.stage.settle()
        finally:
            self.stage.close()
            self.stage = None
