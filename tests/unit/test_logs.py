"""One line an event, with the job it is about, and without what must not be written down."""

import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kopf
import pytest

from qmljob_operator.controller.logs import LogFormat, LogLevel, configure, job_context
from qmljob_operator.controller.workqueue import JobKey

KEY = JobKey("team", "qcnn")


@pytest.fixture(autouse=True)
def _global_state() -> Iterator[None]:
    """Puts back what `configure` sets for the whole process."""
    root = logging.getLogger()
    handlers, level, hooks = root.handlers[:], root.level, (sys.excepthook, threading.excepthook)
    libraries = {name: logging.getLogger(name).level for name in ("kopf", "kubernetes", "aiohttp", "asyncio")}
    yield
    root.handlers[:], (sys.excepthook, threading.excepthook) = handlers, hooks
    root.setLevel(level)
    logging.captureWarnings(False)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)


@contextmanager
def written(log_format: LogFormat = LogFormat.JSON, level: LogLevel = LogLevel.INFO) -> Iterator[list[str]]:
    """Collects the lines that are logged inside the block."""
    stream, lines = io.StringIO(), list[str]()
    configure(log_format, level, stream=stream)
    yield lines
    lines += stream.getvalue().splitlines()


def only(lines: list[str]) -> dict[str, Any]:
    (line,) = lines
    fields: dict[str, Any] = json.loads(line)
    return fields


LOG = logging.getLogger("qmljob_operator.somewhere")


def test_a_line_is_json_with_time_level_logger_and_message() -> None:
    with written() as lines:
        LOG.warning("%d pods are gone", 2)
    fields = only(lines)
    assert fields.pop("time").endswith("Z")
    assert fields == {"level": "warning", "logger": "qmljob_operator.somewhere", "message": "2 pods are gone"}


def test_a_line_inside_a_pass_names_the_job_and_its_attempt() -> None:
    with written() as lines:
        with job_context(KEY):
            LOG.info("read")
            with job_context(KEY, attempt=3):
                LOG.info("decided")
            LOG.info("done")
        LOG.info("idle")
    found = [json.loads(line) for line in lines]
    assert [(fields.get("job"), fields.get("attempt")) for fields in found] == [
        ("team/qcnn", None),
        ("team/qcnn", 3),
        ("team/qcnn", None),
        (None, None),
    ]


def test_passes_side_by_side_do_not_mix_up_their_jobs() -> None:
    async def work(name: str) -> None:
        with job_context(JobKey("team", name)):
            for _ in range(3):
                await asyncio.sleep(0)
                LOG.info(name)

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    with written() as lines:
        asyncio.run(both())
    assert len(lines) == 6
    for fields in map(json.loads, lines):
        assert fields["job"] == f"team/{fields['message']}"


def test_extra_fields_stand_beside_the_message_and_replace_nothing() -> None:
    with written() as lines, job_context(KEY):
        extra = {"loss": float("nan"), "pods": ("a", "b"), "level": "fake", "time": 0, "ok": True, "who": KEY}
        LOG.info("trained", extra=extra)
    fields = only(lines)
    assert (fields["loss"], fields["pods"], fields["level"], fields["ok"]) == ("nan", ["a", "b"], "info", True)
    assert (fields["who"], fields["job"]) == ("team/qcnn", "team/qcnn")
    assert "NaN" not in lines[0]
    assert fields["time"] != 0


def test_a_traceback_is_a_field_of_its_line() -> None:
    with written() as lines:
        try:
            raise ZeroDivisionError("a bug")
        except ZeroDivisionError:
            LOG.exception("the pass failed")
    fields = only(lines)
    assert fields["message"] == "the pass failed"
    assert fields["traceback"].startswith("Traceback (most recent call last):\n")
    assert fields["traceback"].endswith("ZeroDivisionError: a bug")


def test_a_line_for_people_is_one_line_whatever_it_quotes() -> None:
    with written(LogFormat.TEXT) as lines, job_context(KEY, attempt=2):
        LOG.info("exit message: %s", "bye\n2026-01-01T00:00:00.000Z ERROR   forged")
    (line,) = lines
    assert "INFO    qmljob_operator.somewhere: exit message: bye\\n2026-01-01" in line
    assert line.endswith("[job=team/qcnn attempt=2]")


def test_a_traceback_for_people_stands_under_its_line() -> None:
    with written(LogFormat.TEXT) as lines:
        try:
            raise ZeroDivisionError("a bug")
        except ZeroDivisionError:
            LOG.exception("the pass failed")
    assert lines[0].endswith("the pass failed")
    assert lines[-1] == "ZeroDivisionError: a bug"


_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLW9mLWEtdG9rZW4"


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.parametrize(
    "secret",
    [f"Bearer {_TOKEN}", f"bearer  {_TOKEN}", "Basic dXNlcjpwYXNzd29yZA==", _TOKEN, "Bearer 31ada4fd-adec-460c"],
)
def test_tokens_are_struck_out_wherever_they_stand(log_format: LogFormat, secret: str) -> None:
    with written(log_format) as lines:
        LOG.info("request with %s", {"Authorization": secret})
        LOG.info("request", extra={"headers": {"Authorization": secret}})
        try:
            raise ValueError(f"bad header {secret}")
        except ValueError:
            LOG.exception("failed")
    text = "\n".join(lines)
    assert secret.rsplit(maxsplit=1)[-1] not in text
    assert text.count("[struck out]") >= 3


@pytest.mark.parametrize(
    "text", ["the bearer of this lease", "basic needs", "a bearer token is missing", "eyJ is no token"]
)
def test_words_are_not_taken_for_tokens(text: str) -> None:
    with written() as lines:
        LOG.info(text)
    assert only(lines)["message"] == text


@pytest.mark.parametrize("level", LogLevel)
def test_libraries_never_log_what_may_hold_bodies(level: LogLevel) -> None:
    with written(level=level) as lines:
        for name in ("kopf.objects", "kopf._core.reactor", "kubernetes.aio.client", "aiohttp.access", "asyncio"):
            logging.getLogger(name).debug("body: ...")
            logging.getLogger(name).info("handler succeeded")
        for name in ("kopf.objects", "kubernetes.aio.client"):
            logging.getLogger(name).error("it broke")
        logging.getLogger("kubernetes.aio.leaderelection.leaderelection").error("looked in vain")
    assert [json.loads(line)["message"] for line in lines] == ["it broke", "it broke"]


def test_what_kopf_logs_of_a_job_names_the_job() -> None:
    reference = {"kind": "QMLJob", "namespace": "team", "name": "qcnn", "uid": "1"}
    extra = {"k8s_ref": reference, "k8s_skip": True, "settings": kopf.OperatorSettings()}
    with written() as lines:
        logging.getLogger("kopf.objects").warning("Patching failed", extra=extra)
        logging.getLogger("kopf.objects").warning("Odd", extra=extra | {"k8s_ref": reference | {"kind": "Pod"}})
    first, second = map(json.loads, lines)
    assert (first["job"], second.get("job")) == ("team/qcnn", None)
    assert not {"k8s_ref", "k8s_skip", "settings"} & (set(first) | set(second))


def test_the_level_decides_what_is_written() -> None:
    with written(level=LogLevel.ERROR) as lines:
        LOG.info("no")
        LOG.warning("no")
        LOG.error("yes")
    assert only(lines)["message"] == "yes"


def test_warnings_are_lines_too() -> None:
    with written() as lines:
        warnings.warn("old", UserWarning, stacklevel=1)
    assert only(lines)["logger"] == "py.warnings"


def test_configuring_twice_does_not_write_twice() -> None:
    configure(LogFormat.TEXT, LogLevel.DEBUG, stream=io.StringIO())
    with written() as lines:
        LOG.info("once")
    assert only(lines)["message"] == "once"


_PROGRAM = """
import asyncio, sys, threading
from qmljob_operator.controller.logs import LogFormat, LogLevel, configure

async def lost_task():
    task = asyncio.get_running_loop().create_task(fail())
    await asyncio.sleep(0)

async def fail():
    raise ZeroDivisionError("a bug")

configure(LogFormat.JSON, LogLevel.INFO)
match sys.argv[1]:
    case "main":
        asyncio.run(fail())
    case "thread":
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    case "task":
        asyncio.run(lost_task())
"""


@pytest.mark.parametrize(("place", "code"), [("main", 1), ("thread", 0), ("task", 0)])
def test_an_uncaught_exception_is_one_line_with_its_traceback(place: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, place], capture_output=True, text=True, check=False)
    fields = only(ended.stderr.splitlines())
    assert ended.returncode == code
    assert fields["level"] in {"critical", "error"}
    assert "ZeroDivisionError" in fields["traceback"]
