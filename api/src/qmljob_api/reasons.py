"""Reasons: why a job restarted or failed. They are API: status, events, metrics and documentation use these words."""

from enum import StrEnum


class Reason(StrEnum):
    """A CamelCase reason, with a sentence on when it holds."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> "Reason":
        """Keeps the sentence beside the value."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    REPLICA_FAILED = (
        "ReplicaFailed",
        "A replica's program failed; the gang restarts, charged against the backoff limit.",
    )
    DISRUPTED = "Disrupted", "The cluster took a replica away (eviction, preemption, a lost node); not charged."
    LOST_PEERS_ONLY = "LostPeersOnly", "Replicas lost each other and none shows the cause; limited on its own count."
    REPLICA_NEVER_STARTED = (
        "ReplicaNeverStarted",
        "A replica failed while another one of its attempt had not started; not charged.",
    )
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded", "A replica failed and all of runPolicy.backoffLimit was used up."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "The job took longer than runPolicy.activeDeadlineSeconds."
    STARTUP_DEADLINE_EXCEEDED = (
        "StartupDeadlineExceeded",
        "Some replica did not start within runPolicy.startupDeadlineSeconds.",
    )
    INVALID_CONFIGURATION = "InvalidConfiguration", "A replica can't run as it is configured; it would fail again."
    BAD_ARTIFACT = "BadArtifact", "An artifact or checkpoint is missing, damaged or of another model."
    FAILURE_RULE = "FailureRule", "A rule of spec.failurePolicy says that this failure fails the job."
