"""Names are API: they are what people type and what other tools look for."""

import pytest

from qmljob_api import names


def test_a_replica_is_named_by_job_role_and_index() -> None:
    assert names.replica_name("qcnn", "worker", 0) == "qcnn-worker-0"


@pytest.mark.parametrize(("manual", "name"), [(False, "qcnn-inference"), (True, "qcnn-inference-manual")])
def test_an_inference_job_is_named_by_its_job(manual: bool, name: str) -> None:
    assert names.inference_job_name("qcnn", manual=manual) == name


@pytest.mark.parametrize(
    ("replicas", "inference", "longest"),
    [
        ({"worker": 1}, False, "q-worker-0"),
        ({"worker": 11}, False, "q-worker-10"),
        ({"chief": 1, "worker": 10}, False, "q-worker-9"),
        ({"worker": 100, "evaluator": 1}, False, "q-evaluator-0"),
        ({"worker": 2}, True, "q-inference-manual"),
        ({}, False, "q"),
    ],
)
def test_the_longest_derived_name_counts_the_digits_of_the_largest_index(
    replicas: dict[str, int], inference: bool, longest: str
) -> None:
    assert names.longest_derived_name("q", replicas, inference=inference) == longest


def test_labels_and_version_are_of_the_group() -> None:
    assert names.API_VERSION == "qml.dev/v1alpha1"
    assert (names.LABEL_JOB, names.LABEL_ATTEMPT) == ("qml.dev/job", "qml.dev/attempt")
