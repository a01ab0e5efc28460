"""TF_CONFIG is written as TensorFlow reads it, and a wrong one is refused in one line."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_api.tfconfig import Task, TFConfigError, build_tf_config, parse_tf_config

TWO = {"worker": ["a:1", "b:1"]}


def text(cluster: Any = TWO, role: Any = "worker", index: Any = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


def test_what_is_built_is_the_documented_json() -> None:
    assert json.loads(build_tf_config({"worker": ("a:1", "b:1")}, "worker", 1)) == {
        "cluster": {"worker": ["a:1", "b:1"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("cluster", "role", "index", "address", "chief"),
    [
        (TWO, "worker", 1, "b:1", Task("worker", 0)),
        ({"worker": ["a:1"]}, "worker", 0, "a:1", Task("worker", 0)),
        ({"chief": ["c:1"], "worker": ["a:1"]}, "worker", 0, "a:1", Task("chief", 0)),
        ({"worker": ["a:1"], "ps": ["p:1"]}, "ps", 0, "p:1", Task("worker", 0)),
        (TWO, "evaluator", 0, None, Task("worker", 0)),
        ({"worker": ["[::1]:80"]}, "worker", 0, "[::1]:80", Task("worker", 0)),
    ],
    ids=["two workers", "one replica", "a chief", "a ps", "an evaluator is outside the cluster", "IPv6"],
)
def test_what_is_built_is_read_again(
    cluster: dict[str, list[str]], role: str, index: int, address: str | None, chief: Task
) -> None:
    config = parse_tf_config(build_tf_config(cluster, role, index))
    assert config.cluster == {name: tuple(addresses) for name, addresses in cluster.items()}
    assert config.task == Task(role, index)
    assert config.address == address
    assert config.chief == chief
    assert config.is_chief == (Task(role, index) == chief)


WRONG = {
    "not JSON": ("{", "is not JSON at character 2: write one object"),
    "empty": ("", "is not JSON at character 1: write one object"),
    "nested without end": ("[" * 100_000, "is not JSON: write one object"),
    "a list": ("[]", "is not a JSON object"),
    "no cluster": ("{}", "has no cluster: give it as"),
    "an empty cluster": (text({}), "has no cluster: give it as"),
    "an unknown role": (text({"boss": ["a:1"]}), 'cluster names the unknown role "boss": use one of chief, worker, ps'),
    "an unknown task type": (text(role="boss"), 'task.type names the unknown role "boss": use one of'),
    "a task type that is a list": (text(role=["worker"]), 'task.type names the unknown role ["worker"]'),
    "an evaluator in the cluster": (text({**TWO, "evaluator": ["e:1"]}), "has an evaluator: remove it"),
    "addresses that are text": (text({"worker": "a:1"}), "cluster.worker is not a list of addresses"),
    "no addresses": (text({"worker": []}), "cluster.worker is not a list of addresses"),
    "an address without a port": (text({"worker": ["a"]}), 'cluster.worker[0] is "a": give host:port'),
    "an address without a host": (text({"worker": [":1"]}), 'cluster.worker[0] is ":1": give host:port'),
    "a port out of range": (text({"worker": ["a:1", "b:70000"]}), 'cluster.worker[1] is "b:70000": give host:port'),
    "a port in other digits": (text({"worker": ["a:٣"]}), "give host:port"),
    "a URL": (text({"worker": ["grpc://a:1"]}), "give host:port"),
    "an address twice": (text({"worker": ["a:1", "a:1"]}), "has the address a:1 twice, at cluster.worker[0] and"),
    "nobody who trains": (text({"ps": ["a:1"]}, "ps"), "has neither a chief nor a worker: add one"),
    "no task": (json.dumps({"cluster": TWO}), "has no task: give it as"),
    "an index outside the cluster": (text(index=2), "task.index is 2, but the cluster has 2 of worker: use 0 to 1"),
    "a negative index": (text(index=-1), "task.index is -1: give a whole number from 0"),
    "an index in quotes": (text(index="0"), 'task.index is "0": give a whole number from 0'),
    "an index that is true": (text(index=True), "task.index is true: give a whole number from 0"),
    "a role that the cluster lacks": (text(role="chief"), "task is a chief, but its cluster has none: add 'chief'"),
}


@pytest.mark.parametrize(("value", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_one_is_refused_in_one_line(value: str, message: str) -> None:
    with pytest.raises(TFConfigError) as error:
        parse_tf_config(value)
    assert message in str(error.value)
    assert str(error.value).startswith("TF_CONFIG")
    assert "\n" not in str(error.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["worker", "a:1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cluster", "task", "type", "index", "worker", "chief"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(cluster=_JSON, task=_JSON)
def test_whatever_it_holds_the_answer_is_a_config_or_one_line(cluster: Any, task: Any) -> None:
    text = json.dumps({"cluster": cluster, "task": task})
    answers = []
    with contextlib.suppress(TFConfigError):
        config = parse_tf_config(text)
        answers.append(config.address)
        assert config.address is not None or config.task.type == "evaluator"
    if not answers:
        with pytest.raises(TFConfigError, match=r"\ATF_CONFIG[^\n]+\Z"):
            parse_tf_config(text)
