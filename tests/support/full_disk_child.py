"""Fills the disk under a store, and reports as JSON what was left: `full_disk_child.py FOLDER BYTES`."""

import json
import sys
from pathlib import Path

from qmljob_training.stores import StoreError, open_store

OLD = b"o" * 5000


def main() -> None:
    """Writes an object, then one that does not fit, then a small one."""
    folder, size = sys.argv[1], int(sys.argv[2])
    store = open_store(f"file://{folder}")
    store.put("object", OLD)
    error: StoreError | None = None
    try:
        store.put("object", b"n" * size)
    except StoreError as raised:
        error = raised
    report: dict[str, object] = {
        "error": type(error).__name__,
        "message": str(error),
        "old object is whole": store.get("object").data == OLD,
        "listed": store.list(),
        "left over": [path.name for path in Path(folder).glob(".qmljob-tmp-*")],
    }
    try:
        report["written afterwards"] = store.put("object", b"small") > 0
    except StoreError:
        report["written afterwards"] = False
    print(json.dumps(report))


if __name__ == "__main__":
    main()
