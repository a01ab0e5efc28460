"""The words of a status: in which phase a job is, and what its conditions tell."""

from qmljob_api.sentences import Explained


class Phase(Explained):
    """A job's state in one word: a summary of its conditions, for people."""

    PENDING = "Pending", "Nothing of the job was started yet."
    STARTING = "Starting", "An attempt has begun and some replica does not run yet."
    RUNNING = "Running", "All replicas run."
    RESTARTING = "Restarting", "An attempt has ended and the next one has not started."
    SUSPENDED = "Suspended", "spec.suspend is true."
    SUCCEEDED = "Succeeded", "Training is done."
    FAILED = "Failed", "The job has ended without success."
    INVALID = "Invalid", "The job can't be run as it is written."


class ConditionType(Explained):
    """What a condition tells. The order is by urgency: the first that is True says most about a job."""

    INVALID = "Invalid", "The job can't be run as it is written; it starts when it is edited."
    BLOCKED = "Blocked", "Something outside the job keeps it from going on; it is tried again."
    WAITING_FOR_NODE = (
        "WaitingForNode",
        "A node does not answer and holds a pod of the job; the message names the ways out.",
    )
    RUNNING = "Running", "All replicas of the present attempt run, or have ended with success."
    SUSPENDED = "Suspended", "spec.suspend is true and the job's pods are gone."
    SUCCEEDED = "Succeeded", "Training is done. Once True it stays True."
    FAILED = "Failed", "The job has ended without success. Once True it stays True."
    INFERENCE_SUCCEEDED = "InferenceSucceeded", "The inference Job has ended with success."
    INFERENCE_FAILED = "InferenceFailed", "The inference Job has failed."
