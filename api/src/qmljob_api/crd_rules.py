"""The rules of `rules` and `templates` in CEL, for the API server, and those that only a server can hold.

Each stands at the place of a schema that its message is about, in the words that the parser has for it. A differential
test on a real API server holds the two together.
"""

from collections.abc import Mapping

from qmljob_api import names
from qmljob_api.exitcodes import ExitCode
from qmljob_api.types import DNS_1035, MAX_REPLICAS, Role

Rule = dict[str, str]
Place = tuple[str, ...]
"""Keys that lead from a schema's root to a node of it."""

_ROLES: Place = ("spec", "replicaSpecs")
_CODE: Place = ("spec", "failurePolicy", "rules", "[]", "onExitCodes", "values", "[]")
_SAME_NUMBER = "self.filter(p, self.filter(q, q.port == p.port).size() > 1)"
TEMPLATES: tuple[Place, ...] = (
    *((*_ROLES, role.value, "template") for role in Role),
    ("spec", "inference", "template"),
)


def rules() -> Mapping[Place, list[Rule]]:
    """Returns the rules of a QMLJob, by the places in its schema where they stand."""
    placed: dict[Place, list[Rule]] = {
        (): [_name(), *_derived_names(), *_transitions()],
        ("status", "conditions"): [_one_end()],
        ("spec",): [_rendezvous()],
        ("spec", "ports"): [_port_numbers()],
        ("spec", "ports", "[]", "name"): _port_name(),
        _CODE: _exit_code(),
        _ROLES: [_leader(), _total()],
        (*_ROLES, Role.CHIEF.value, "replicas"): [
            _single(Role.CHIEF, "set it to 1, and give the others the role worker")
        ],
        (*_ROLES, Role.EVALUATOR.value, "replicas"): [_single(Role.EVALUATOR, "set it to 1")],
    }
    for template in TEMPLATES:
        placed[(*template, "spec", "restartPolicy")] = [_restart_policy()]
        placed[(*template, "metadata", "labels")] = [_labels()]
    return placed


def _rule(rule: str, message: str, said: str = "", *values: str, **more: str) -> Rule:
    """Returns a rule. `said` is its message with %s and %d for the values of CEL expressions.

    `message` is what a server says that can't compute them.
    """
    # Never by `+`: to the server's estimate of costs string(…) is of any length, and so is all that it is added to.
    expression = {"messageExpression": f"{_quoted(said)}.format([{', '.join(values)}])"} if said else {}
    return {"rule": rule, "message": message, **expression, **more}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


def _name() -> Rule:
    said = "is not a valid name; use lower-case letters, digits and '-', from a letter to a letter or digit"
    return _rule(
        f"self.metadata.name.matches('{DNS_1035}')",
        said,
        f'"%s" {said}',
        "self.metadata.name",
        fieldPath=".metadata.name",
    )


def _derived_names() -> list[Rule]:
    result = []
    for role in Role:
        last = f"(self.spec.replicaSpecs.{role.value}.replicas - 1)"
        digits = f"({last} > 99 ? 3 : {last} > 9 ? 2 : 1)"
        suffix = names.replica_name("", role.value, 0)[:-1]
        field = f"self.spec.replicaSpecs.{role.value}"
        result.append(_derived_name(field, f"({len(suffix)} + {digits})", f"%s{suffix}%d", "self.metadata.name", last))
    suffix = names.inference_job_name("", manual=True)
    result.append(_derived_name("self.spec.inference", str(len(suffix)), f"%s{suffix}", "self.metadata.name"))
    return result


def _derived_name(field: str, added: str, name: str, *parts: str) -> Rule:
    length = f"(self.metadata.name.size() + {added})"
    excess = f"({length} - {names.NAME_LIMIT})"
    return _rule(
        f"!has({field}) || {length} <= {names.NAME_LIMIT}",
        "makes a name that is too long; make it shorter",
        f'makes the name "{name}" of %d characters, {names.NAME_LIMIT} at most; make it shorter by %d character%s',
        *parts,
        length,
        excess,
        f"({excess} > 1 ? 's' : '')",
        fieldPath=".metadata.name",
    )


def _transitions() -> list[Rule]:
    # At the root, where a rule also holds when all of the status is taken away.
    return [
        _rule(
            "!has(oldSelf.status) || !has(oldSelf.status.attempt) || (has(self.status) && has(self.status.attempt) && "
            "self.status.attempt >= oldSelf.status.attempt)",
            "status.attempt never goes down nor away; delete the job and create it again to start from attempt 0",
        ),
        _rule(
            "!has(oldSelf.status) || !has(oldSelf.status.conditions) || oldSelf.status.conditions.all(o, "
            "!(o.type in ['Succeeded', 'Failed']) || o.status != 'True' || (has(self.status) && "
            "has(self.status.conditions) && self.status.conditions.exists(c, c.type == o.type && c.status == 'True')))",
            "a job that has ended stays so; delete it and create it again to run it once more",
        ),
    ]


def _one_end() -> Rule:
    return _rule(
        "!['Succeeded', 'Failed'].all(t, self.exists(c, c.type == t && c.status == 'True'))",
        "a job can't have both succeeded and failed; leave the condition that came first",
    )


def _leader() -> Rule:
    return _rule(
        "has(self.worker) || has(self.chief)",
        "has neither a worker nor a chief; add 'worker' with 'replicas' and a 'template'",
    )


def _total() -> Rule:
    total = " + ".join(f"(has(self.{role.value}) ? self.{role.value}.replicas : 0)" for role in Role)
    return _rule(
        f"{total} <= {MAX_REPLICAS}",
        f"asks for more than {MAX_REPLICAS} replicas; remove some",
        f"asks for %d replicas, {MAX_REPLICAS} at most; remove %d",
        total,
        f"{total} - {MAX_REPLICAS}",
    )


def _single(role: Role, hint: str) -> Rule:
    said = f"is more than the one {role.value} a job may have; {hint}"
    return _rule("self <= 1", said, f"%d {said}", "self")


def _rendezvous() -> Rule:
    said = "is the rendezvous (spec.port) already; choose another number"
    return _rule(
        "!has(self.ports) || self.ports.all(p, p.port != self.port)",
        said,
        f"%d {said}",
        "self.port",
        fieldPath=".ports",
    )


def _port_numbers() -> Rule:
    return _rule(
        f"{_SAME_NUMBER}.size() == 0",
        "a number is listed twice; choose another number",
        "%d is the number of spec.ports[%d] too; choose another number",
        f"{_SAME_NUMBER}[0].port",
        f"self.map(p, p.port).indexOf({_SAME_NUMBER}[0].port)",
    )


def _port_name() -> list[Rule]:
    taken = "is the name of spec.port; choose another name"
    digits = "has no letter; add one, for example 'profiler'"
    return [
        _rule(f"self != '{names.RENDEZVOUS_PORT_NAME}'", taken, f'"%s" {taken}', "self"),
        _rule("self.matches('[a-z]')", digits, f'"%s" {digits}', "self"),
    ]


def _exit_code() -> list[Rule]:
    known = "is not an exit code; use a number from 1 to 255"
    peer = "(lost peer) is never the cause of a failure, so that no rule is asked about it; remove it"
    return [
        _rule(f"self != {ExitCode.SUCCESS:d}", f"{ExitCode.SUCCESS:d} is success, not a failure; remove it"),
        _rule("self >= 0 && self <= 255", known, f"%d {known}", "self"),
        _rule(f"self != {ExitCode.LOST_PEER:d}", f"{ExitCode.LOST_PEER:d} {peer}"),
    ]


def _restart_policy() -> Rule:
    said = (
        "is not Never: a replica that restarts alone hangs the gang; remove it; QMLJob restarts all replicas together"
    )
    return _rule("self == 'Never'", said, f'"%s" {said}', "self")


def _labels() -> Rule:
    said = f"is a label that QMLJob sets itself ({names.GROUP}/…); remove it"
    ours = f"self.filter(key, key.startsWith('{names.GROUP}/'))"
    return _rule(f"{ours}.size() == 0", said, f"%s {said}", f"{ours}[0]")
