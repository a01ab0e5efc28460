"""An injector alone, before any API server: `python -m support.injector --kubeconfig FILE --port 8001 --fault '…'`.

Clients bring their own credentials. It prints each call that it strikes, and what it did, until it is interrupted.
"""

import argparse
import asyncio
import base64
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from support.injector.faults import Fault, Noise, parse_fault, parse_words
from support.injector.proxy import Injector
from support.injector.upstream import Upstream

_LOOK_SECONDS = 0.5


def main(arguments: Sequence[str]) -> int:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m support.injector", description="Faults before an API server.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="names the API server; its user is not used")
    parser.add_argument("--port", type=int, default=0, help="to listen on, on loopback (default: any free one)")
    parser.add_argument("--fault", action="append", default=[], type=_fault, metavar="'call=… fault=…'")
    parser.add_argument("--noise", type=float, default=0.0, metavar="SHARE", help="of the calls that get a fault")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")
    given = parser.parse_args(arguments)
    noise = Noise(given.seed, given.noise) if given.noise else None
    with tempfile.TemporaryDirectory() as folder:
        upstream = upstream_of(yaml.safe_load(given.kubeconfig.read_text()), Path(folder))
        try:
            asyncio.run(_serve(upstream, tuple(given.fault), noise, given.port))
        except KeyboardInterrupt:
            return 0
    return 0


def upstream_of(kubeconfig: dict[str, Any], folder: Path) -> Upstream:
    """Returns the server of a kubeconfig's present context; its authority goes into a file in `folder`."""
    contexts = {each["name"]: each["context"] for each in kubeconfig["contexts"]}
    clusters = {each["name"]: each["cluster"] for each in kubeconfig["clusters"]}
    cluster = clusters[contexts[kubeconfig["current-context"]]["cluster"]]
    authority = cluster.get("certificate-authority")
    if "certificate-authority-data" in cluster:
        authority = folder / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return Upstream(cluster["server"], Path(authority) if authority else None)


async def _serve(upstream: Upstream, faults: tuple[Fault, ...], noise: Noise | None, port: int) -> None:
    injector = Injector(upstream, asyncio.get_running_loop(), faults, noise)
    await injector.listen(port)
    print(f"injector: {injector.url}", flush=True)
    told = 0
    try:
        while True:
            for fault in injector.struck[told:]:
                print(fault, flush=True)
                told += 1
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await injector.close()


def _fault(line: str) -> Fault:
    try:
        return parse_fault(parse_words(line))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
