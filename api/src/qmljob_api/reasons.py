"""Reasons: why something is so. They are API: status, events, metrics and documentation use these words."""

from qmljob_api.sentences import Explained


class Reason(Explained):
    """A CamelCase reason, with a sentence on when it holds."""

    # Why an attempt ended, or the job failed.
    REPLICA_FAILED = (
        "ReplicaFailed",
        "A replica's program failed; the gang restarts, charged against the backoff limit.",
    )
    REPLICA_REPLACED = (
        "ReplicaReplaced",
        "A replica ended whose peers do not wait for it; it alone starts anew.",
    )
    DISRUPTED = "Disrupted", "The cluster took a replica away (eviction, preemption, a lost node); not charged."
    LOST_PEERS_ONLY = "LostPeersOnly", "Replicas lost each other and none shows the cause; limited on its own count."
    REPLICA_NEVER_STARTED = (
        "ReplicaNeverStarted",
        "A replica failed while another one of its attempt had not started; not charged.",
    )
    SPEC_CHANGED = (
        "SpecChanged",
        "An edit of the job changes its pods; the gang restarts from the checkpoint, not charged.",
    )
    STATUS_LOST = (
        "StatusLost",
        "The status no longer describes the pods that are there; a new attempt starts, not charged.",
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

    # The way of a job.
    CREATED = "Created", "The job was seen for the first time."
    STARTING = "Starting", "An attempt's pods and Services are being created."
    ATTEMPT_STARTED = "AttemptStarted", "All pods of an attempt were created."
    REPLICAS_STARTING = "ReplicasStarting", "Some replica of the attempt does not run yet."
    REPLICAS_RUNNING = "ReplicasRunning", "All replicas of the attempt run, or have ended with success."
    RESTARTING = "Restarting", "The attempt has ended and the next one has not started."
    JOB_SUSPENDED = "JobSuspended", "spec.suspend is true: the job has no pods and keeps its state."
    JOB_RESUMED = "JobResumed", "spec.suspend is false again; a new attempt goes on from the checkpoint, not charged."
    TRAINING_SUCCEEDED = "TrainingSucceeded", "The replicas that spec.successPolicy counts have ended with success."
    INFERENCE_STARTED = "InferenceStarted", "Training has succeeded and the inference Job was created."
    INFERENCE_SUCCEEDED = (
        "InferenceSucceeded",
        "The inference Job has ended with success; status.results has its answer.",
    )
    INFERENCE_FAILED = "InferenceFailed", "The inference Job has failed; the job's own success stays."
    DELETED = "Deleted", "The job had ended runPolicy.ttlSecondsAfterFinished ago, and was deleted."

    # What keeps a job from going on, until someone or something changes it.
    INVALID_SPEC = "InvalidSpec", "The job can't be run as it is written; the message says what to change."
    UNKNOWN_FIELDS = "UnknownFields", "The job has fields that this operator does not know; it ignores them."
    FORBIDDEN = (
        "Forbidden",
        "The API server does not allow the pods (quota, ServiceAccount, Pod Security); tried again with backoff.",
    )
    NAME_TAKEN = "NameTaken", "An object that is not this job's has a name that the job needs; it is left alone."
    IMAGE_UNAVAILABLE = "ImageUnavailable", "A replica's image can't be pulled."
    CONTAINER_CANNOT_START = (
        "ContainerCannotStart",
        "A replica's container can't be made (a ConfigMap, Secret or volume is missing, or its command is not there).",
    )
    UNSCHEDULABLE = "Unschedulable", "No node has room for a replica, or none matches what its pod asks for."
    NODE_UNREACHABLE = (
        "NodeUnreachable",
        "A replica's node does not answer, so its pod can't be deleted; the next attempt waits for that.",
    )
    FORCE_DELETED = "ForceDeleted", "The pod of an unreachable node was deleted without its node's consent."
    REPAIRED = "Repaired", "Something that the job needs was missing or changed, and was put back."
    RESOLVED = "Resolved", "What the condition told of no longer holds."
