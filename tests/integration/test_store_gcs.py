"""A bucket as a store: over HTTP, against an emulator that enforces preconditions, with faults in between."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from pydantic import BaseModel

from qmljob_training.stores import (
    Fenced,
    ObjectNotFound,
    PreconditionFailed,
    RetrySettings,
    Store,
    StoreMisconfigured,
    StoreUnavailable,
    open_store,
    put_fenced,
)
from qmljob_training.testing import STORE_CHECKS
from support.fault_proxy import (
    Answer,
    CorruptBody,
    CorruptRequest,
    CutAnswer,
    CutBody,
    CutRequest,
    FaultProxy,
    Hold,
    TruncateBody,
    fault_proxy,
)
from support.fencing import fencing_cases, given_history_holds
from support.gcs_emulator import Emulator, running_emulator

WAIT_SECONDS = 60
UPLOAD, DOWNLOAD, METADATA = "/upload/", "alt=media", "projection=noAcl"
PATIENT = RetrySettings(deadline=60, initial_delay=0.01, maximum_delay=0.05)
IMPATIENT = replace(PATIENT, deadline=0.2)
NUMBERS = itertools.count()
RETRIED = [Answer(429), Answer(408), Answer(500), Answer(502), Answer(503), Answer(504), CutRequest(), CutAnswer()]
DATA = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def emulator(tmp_path_factory) -> Iterator[Emulator]:
    with running_emulator(tmp_path_factory.mktemp("emulator") / "log") as running:
        yield running


@pytest.fixture
def bucket(emulator) -> str:
    name = f"bucket-{next(NUMBERS)}"
    requests.post(f"{emulator.url}/storage/v1/b", json={"name": name}, timeout=WAIT_SECONDS).raise_for_status()
    return name


@pytest.fixture
def proxy(emulator, monkeypatch) -> Iterator[FaultProxy]:
    with fault_proxy(emulator.host, emulator.port) as running:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.url)
        yield running


@pytest.fixture
def store(bucket, proxy) -> Store:
    """A store whose requests go through the proxy."""
    return open_store(f"gs://{bucket}/some/prefix", retry=PATIENT)


@pytest.fixture
def rival(store, emulator, monkeypatch) -> Store:
    """The same location without the proxy in between."""
    with monkeypatch.context() as direct:
        direct.setenv("STORAGE_EMULATOR_HOST", emulator.url)
        other = open_store(store.location, retry=PATIENT)
        other.list()  # its client is made now, with this address
    return other


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_bucket_keeps_the_contract(check, bucket, proxy):
    check(lambda: open_store(f"gs://{bucket}/some/prefix", retry=PATIENT))


def test_a_whole_bucket_is_a_location_too(bucket, proxy):
    store = open_store(f"gs://{bucket}/")
    store.put("object", DATA)
    assert store.location == f"gs://{bucket}"
    assert open_store(f"gs://{bucket}").list() == ("object",)


def test_a_prefix_is_a_folder_and_not_the_beginning_of_another(bucket, proxy):
    open_store(f"gs://{bucket}/a").put("object", DATA)
    assert open_store(f"gs://{bucket}/a/object").list() == ()
    assert open_store(f"gs://{bucket}/").list() == ("a/object",)


def test_opening_a_store_asks_nothing(store, proxy):
    assert proxy.requests == []


# -- faults that pass -------------------------------------------------------------------------------------------------


def _put(store: Store) -> None:
    store.put("object", b"new")
    assert store.get("object").data == b"new"


def _put_if(store: Store) -> None:
    generation = store.put_if("object", b"new", generation=store.get("object").generation)
    assert store.get("object").generation == generation
    assert store.get("object").data == b"new"


def _get(store: Store) -> None:
    assert store.get("object").data == DATA


def _list(store: Store) -> None:
    assert store.list() == ("object",)


def _delete(store: Store) -> None:
    store.delete("object")
    assert store.list() == ()


def _check_writable(store: Store) -> None:
    store.check_writable()
    assert store.list() == ("object",)


OPERATIONS = [
    pytest.param(_put, "POST", UPLOAD, id="put"),
    pytest.param(_put_if, "POST", UPLOAD, id="put_if"),
    pytest.param(_get, "GET", METADATA, id="get-metadata"),
    pytest.param(_get, "GET", DOWNLOAD, id="get-data"),
    pytest.param(_list, "GET", "prefix=", id="list"),
    pytest.param(_delete, "DELETE", "", id="delete"),
    pytest.param(_check_writable, "POST", UPLOAD, id="check_writable-probe"),
    pytest.param(_check_writable, "DELETE", "", id="check_writable-removal"),
]


@pytest.mark.parametrize("fault", RETRIED, ids=str)
@pytest.mark.parametrize(("operation", "method", "contains"), OPERATIONS)
def test_a_passing_fault_is_survived(operation: Callable[[Store], None], method, contains, fault, store, proxy):
    store.put("object", DATA)
    proxy.plan(fault, method=method, contains=contains, times=2)
    operation(store)
    assert proxy.unused == 0


# -- the lost answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 3])
def test_a_conditional_write_whose_answer_is_lost_counts_once(lost, store, rival, proxy):
    seen = rival.put("object", b"old")
    proxy.plan(CutAnswer(), method="POST", contains=UPLOAD, times=lost)
    generation = store.put_if("object", b"new", generation=seen)
    assert proxy.count(method="POST", contains=UPLOAD) == lost + 1
    assert rival.get("object").data == b"new"
    assert rival.get("object").generation == generation


def test_a_refusal_whose_answer_is_lost_is_a_refusal(store, rival, proxy):
    seen = rival.put("object", b"old")
    rival.put("object", b"rival's")
    proxy.plan(CutAnswer(), method="POST", contains=UPLOAD)
    with pytest.raises(PreconditionFailed, match="read it again"):
        store.put_if("object", b"new", generation=seen)
    assert rival.get("object").data == b"rival's"


def test_equal_bytes_of_a_rival_are_not_taken_for_our_own(store, rival, proxy):
    rival.put("object", b"same")
    with pytest.raises(PreconditionFailed):
        store.put_if("object", b"same", generation=0)


def test_a_lost_success_that_a_rival_has_replaced_is_a_refusal(store, rival, proxy):
    held = Hold()
    proxy.plan(CutAnswer(), method="POST", contains=UPLOAD)
    proxy.plan(held, method="POST", contains=UPLOAD)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.put_if, "object", b"new", generation=0)
        assert held.reached.wait(WAIT_SECONDS)
        assert rival.get("object").data == b"new"
        rival.put("object", b"rival's")
        held.release.set()
        with pytest.raises(PreconditionFailed):
            writing.result(WAIT_SECONDS)
    assert rival.get("object").data == b"rival's"


def test_a_counter_whose_every_answer_is_lost_still_counts_right(store, proxy):
    store.put("counter", b"0")
    for _ in range(5):
        proxy.plan(CutAnswer(), method="POST", contains=UPLOAD)
        seen = store.get("counter")
        store.put_if("counter", b"%d" % (int(seen.data) + 1), generation=seen.generation)
    assert store.get("counter").data == b"5"
    assert proxy.unused == 0


def test_a_delete_whose_answer_is_lost_spares_what_a_rival_wrote_meanwhile(store, rival, proxy):
    held = Hold()
    rival.put("object", b"old")
    proxy.plan(CutAnswer(), method="DELETE")
    proxy.plan(held, method="DELETE")
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(store.delete, "object")
        assert held.reached.wait(WAIT_SECONDS)
        rival.put_if("object", b"rival's", generation=0)
        held.release.set()
        deleting.result(WAIT_SECONDS)
    assert rival.get("object").data == b"rival's"


# -- rivals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [False, True], ids=["create", "replace"])
def test_of_two_conditional_writers_under_way_at_once_one_wins(exists, store, rival, proxy):
    seen = rival.put("object", b"old") if exists else 0
    held = [Hold(), Hold()]
    for hold in held:
        proxy.plan(hold, method="POST", contains=UPLOAD)

    def write(data: bytes) -> bytes | None:
        try:
            store.put_if("object", data, generation=seen)
        except PreconditionFailed:
            return None
        return data

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, data) for data in (b"one", b"two")]
        for hold in held:
            assert hold.reached.wait(WAIT_SECONDS)
        for hold in held:
            hold.release.set()
        winners = [future.result(WAIT_SECONDS) for future in writing]
    assert winners.count(None) == 1
    assert rival.get("object").data in winners


def test_an_object_replaced_in_the_middle_of_a_read_is_read_anew(store, rival, proxy):
    rival.put("object", DATA)
    held = Hold()
    proxy.plan(held, method="GET", contains=DOWNLOAD)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(store.get, "object")
        assert held.reached.wait(WAIT_SECONDS)
        generation = rival.put("object", b"new")
        held.release.set()
        stored = reading.result(WAIT_SECONDS)
    assert (stored.data, stored.generation) == (b"new", generation)


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [CutBody(), TruncateBody(), CorruptBody()], ids=str)
def test_a_torn_download_is_noticed_and_read_again(fault, store, proxy):
    store.put("object", DATA)
    proxy.plan(fault, method="GET", contains=DOWNLOAD)
    assert store.get("object").data == DATA
    assert proxy.count(method="GET", contains=DOWNLOAD) > 1


@pytest.mark.parametrize("resumed", [CutBody(), CorruptBody()], ids=str)
def test_a_download_resumed_into_damage_is_noticed(resumed, store, proxy):
    store.put("object", DATA)
    proxy.plan(CutBody(), method="GET", contains=DOWNLOAD)
    proxy.plan(resumed, method="GET", contains=DOWNLOAD)
    assert store.get("object").data == DATA
    assert proxy.unused == 0


def test_a_download_that_is_always_damaged_is_an_error_and_never_data(store, proxy):
    store.put("object", DATA)
    proxy.plan(CorruptBody(), method="GET", contains=DOWNLOAD, times=1000)
    with pytest.raises(StoreUnavailable, match="never whole and unchanged"):
        store.get("object")


@pytest.mark.parametrize("generation", [None, "seen"], ids=["put", "put_if"])
def test_an_upload_damaged_on_its_way_does_not_become_the_object(generation, store, proxy):
    seen = store.put("object", DATA)
    proxy.plan(CorruptRequest(), method="POST", contains=UPLOAD)
    with pytest.raises(StoreUnavailable, match="damaged on its way to the bucket; write it again"):
        store.put_if("object", DATA[::-1], generation=seen) if generation else store.put("object", DATA[::-1])
    assert store.get("object").data == DATA


@pytest.mark.parametrize("fault", [None, Answer(503), CutRequest(), CutAnswer(), Answer(404), Answer(410)], ids=str)
@pytest.mark.parametrize("method", ["POST", "PUT"], ids=["session", "data"])
def test_an_upload_of_several_requests_survives_faults(method, fault, store, proxy):
    data = bytes(range(256)) * 36 * 1024  # 9 MiB: more than the library sends in one request
    seen = store.put("object", DATA)
    if fault is not None:
        proxy.plan(fault, method=method, contains=UPLOAD)
    generation = store.put_if("object", data, generation=seen)
    assert proxy.unused == 0
    assert store.get("object").data == data
    assert store.get("object").generation == generation


# -- faults that stay -------------------------------------------------------------------------------------------------


OPERATIONS_THAT_FAIL = {
    "put": lambda store: store.put("object", DATA),
    "put_if": lambda store: store.put_if("object", DATA, generation=0),
    "get": lambda store: store.get("object"),
    "list": lambda store: store.list(),
    "check_writable": lambda store: store.check_writable(),
}
each_operation = pytest.mark.parametrize("operation", OPERATIONS_THAT_FAIL.values(), ids=OPERATIONS_THAT_FAIL)


@each_operation
def test_a_bucket_that_does_not_exist_is_named_with_the_command_that_makes_it(operation, proxy):
    store = open_store("gs://no-such-bucket/p", retry=PATIENT)
    with pytest.raises(StoreMisconfigured) as raised:
        operation(store)
    assert str(raised.value) == (
        "bucket 'no-such-bucket' does not exist: create it (gcloud storage buckets create gs://no-such-bucket) "
        "or correct the name"
    )


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, r"no usable Google credentials; run 'gcloud auth"),
        (403, r"access denied; grant this account roles/storage\.objectUser"),
    ],
)
@each_operation
def test_denied_access_says_what_is_missing(operation, status, advice, store, proxy):
    proxy.plan(Answer(status), times=1000)
    with pytest.raises(StoreMisconfigured, match=advice) as raised:
        operation(store)
    assert "\n" not in str(raised.value)
    assert len(proxy.requests) == 1, "what a person must change is not retried"


@pytest.mark.parametrize("fault", [Answer(503), CutRequest()], ids=str)
@each_operation
def test_when_retries_are_used_up_the_store_is_unavailable(operation, fault, bucket, proxy, rival):
    seen = rival.put("object", b"old")
    proxy.plan(fault, times=100_000)
    with pytest.raises(StoreUnavailable, match=r"no success within 0\.2 s of retries") as raised:
        operation(open_store(rival.location, retry=IMPATIENT))
    assert "\n" not in str(raised.value)
    assert len(proxy.requests) > 1
    assert (rival.get("object").data, rival.get("object").generation) == (b"old", seen)


@each_operation
def test_where_nobody_listens_the_store_is_unavailable(operation, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    with pytest.raises(StoreUnavailable, match="check the network"):
        operation(open_store("gs://bucket/p", retry=IMPATIENT))


@each_operation
def test_an_emulators_address_without_a_scheme_is_misconfigured(operation, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:4443")
    with pytest.raises(StoreMisconfigured, match="begin it with http://"):
        operation(open_store("gs://bucket/p", retry=IMPATIENT))


@pytest.mark.parametrize("named", [True, False], ids=["a key file that is not there", "none at all"])
def test_missing_credentials_are_misconfigured(named, monkeypatch, tmp_path):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    if named:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "absent.json"))
    with pytest.raises(StoreMisconfigured, match="no usable Google credentials; run 'gcloud auth"):
        open_store("gs://bucket/p", retry=IMPATIENT).check_writable()


# -- fencing ----------------------------------------------------------------------------------------------------------


class Pointer(BaseModel):
    attempt: int


def test_fencing_survives_lost_answers(store, proxy):
    for attempt in (0, 0, 1, 5):
        proxy.plan(CutAnswer(), method="POST", contains=UPLOAD)
        put_fenced(store, "pointer", Pointer(attempt=attempt), Pointer.model_validate_json)
    with pytest.raises(Fenced, match="belongs to attempt 5"):
        put_fenced(store, "pointer", Pointer(attempt=4), Pointer.model_validate_json)
    assert proxy.unused == 0


def test_a_zombie_that_has_read_before_the_later_attempt_wrote_is_fenced(store, rival, proxy):
    put_fenced(rival, "pointer", Pointer(attempt=0), Pointer.model_validate_json)
    held = Hold()
    proxy.plan(held, method="POST", contains=UPLOAD)
    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(put_fenced, store, "pointer", Pointer(attempt=0), Pointer.model_validate_json)
        assert held.reached.wait(WAIT_SECONDS)
        put_fenced(rival, "pointer", Pointer(attempt=1), Pointer.model_validate_json)
        held.release.set()
        with pytest.raises(Fenced, match="belongs to attempt 1: attempt 0 was replaced"):
            zombie.result(WAIT_SECONDS)
    assert Pointer.model_validate_json(rival.get("pointer").data).attempt == 1


@settings(derandomize=True, deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=fencing_cases())
def test_attempts_only_rise_in_every_interleaving_on_a_bucket(case, bucket, proxy):
    location = f"gs://{bucket}/case-{next(NUMBERS)}"
    given_history_holds(case, lambda: open_store(location, retry=PATIENT))


def test_a_missing_object_in_a_bucket_that_exists_is_not_found(store):
    with pytest.raises(ObjectNotFound, match="some/prefix/absent does not exist"):
        store.get("absent")


def test_a_store_may_be_used_by_several_threads(store):
    barrier = threading.Barrier(4)

    def write(number: int) -> bytes:
        barrier.wait(WAIT_SECONDS)
        store.put(f"object-{number}", b"%d" % number)
        return store.get(f"object-{number}").data

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4), timeout=WAIT_SECONDS)) == [b"0", b"1", b"2", b"3"]
