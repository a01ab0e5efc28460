"""Circuits as pictures: Cirq's drawings, with short names, small enough to read."""

import re
from collections.abc import Collection, Iterable, Mapping
from xml.etree import ElementTree

import cirq
import sympy
from cirq.contrib.svg.svg import tdd_to_svg

from qmljob_api.description import CircuitDrawing

DRAWN_GATES = 500
"""A circuit with more gates is not drawn: it would take seconds and nobody would follow it."""

TEXT_MOMENTS = 12
"""Of a circuit that is too large to draw, so much is shown as text."""

TEXT_COLUMNS = 1_000
_SIZES = {"ref_boxwidth": 34, "ref_boxheight": 34, "col_padding": 12, "row_padding": 8}
TRAINED, FEATURE = "θ", "x"
_NUMBERED = re.compile(r"(\D+)(\d+)")
_ONE = re.compile(r"0\.31830988618379\d*\*pi\*")
_POWER = re.compile(r"\^\((-?\w+)\)")
_FONT = re.compile(r'font-family="[^"]*"')


def abbreviate(circuits: Iterable[cirq.Circuit], trained: Collection[str]) -> dict[str, str]:
    """Returns short names for symbols (`qconv007` -> `θ7`), in the order of their numbers.

    Trained symbols become θ, the others, which stand for features, x; a kind whose symbols don't all begin alike and
    end in a number of their own keeps its names.
    """
    names = {name for circuit in circuits for name in cirq.parameter_names(circuit)}
    short: dict[str, str] = {}
    for letter, kind in ((TRAINED, names & set(trained)), (FEATURE, names - set(trained))):
        parts = [part for part in map(_NUMBERED.fullmatch, kind) if part]
        numbers = {int(part[2]): part[0] for part in parts}
        if len(numbers) == len(kind) and len({part[1] for part in parts}) == 1:
            short |= {numbers[number]: f"{letter}{number}" for number in sorted(numbers)}
    return short


def draw(title: str, circuit: cirq.Circuit, abbreviations: Mapping[str, str]) -> CircuitDrawing:
    """Returns a circuit drawn with the short names of `abbreviate`.

    Gates move to the left where that makes the circuit shorter; else its moments stay as they are.
    """
    renamed = _renamed(circuit, abbreviations)
    shown = min((renamed, cirq.Circuit(renamed.all_operations())), key=len)
    gates = sum(1 for _ in shown.all_operations())
    drawable = 0 < gates <= DRAWN_GATES
    text = _diagram(shown if drawable else shown[:TEXT_MOMENTS]).render()
    return CircuitDrawing(
        title=title,
        svg=_svg(shown) if drawable else None,
        text="\n".join(line if len(line) <= TEXT_COLUMNS else line[:TEXT_COLUMNS] + "…" for line in text.splitlines()),
        qubits=len(shown.all_qubits()),
        moments=len(shown),
        gates=gates,
    )


def _renamed(circuit: cirq.Circuit, abbreviations: Mapping[str, str]) -> cirq.Circuit:
    names = {name: sympy.Symbol(short) for name, short in abbreviations.items()}
    return cirq.resolve_parameters(circuit, names, recursive=False)


def _diagram(circuit: cirq.Circuit) -> cirq.TextDiagramDrawer:
    diagram = circuit.to_text_diagram_drawer(qubit_namer=_wire, draw_moment_groups=False)
    for place, entry in diagram.entries.items():
        diagram.entries[place] = entry._replace(text=_tidy(entry.text))
    return diagram


def _tidy(label: str) -> str:
    """Shortens what Cirq writes for a symbol: Rx(0.318309886183791*pi*x0) and X^(θ0)."""
    return _POWER.sub(r"^\1", _ONE.sub("", label))


def _svg(circuit: cirq.Circuit) -> str | None:
    # Cirq names matplotlib's font, by a pattern that no browser knows.
    svg = _FONT.sub('font-family="DejaVu Sans, Verdana, sans-serif"', tdd_to_svg(_diagram(circuit), **_SIZES))
    try:
        ElementTree.fromstring(svg)
    except ElementTree.ParseError:  # a qubit's own name may break it
        return None
    return svg


def _wire(qubit: cirq.Qid) -> str:
    """Names a qubit: by its number alone where all are in one row, as most registers are."""
    return str(qubit.col) if isinstance(qubit, cirq.GridQubit) and qubit.row == 0 else str(qubit)
