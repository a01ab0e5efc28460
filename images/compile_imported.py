"""Compiles the bytecode of what some modules import, and of nothing else: `compile_imported.py tensorflow kopf`.

An image's root is read-only, so what is not compiled when it is built is compiled anew at each start. Compiling whole
packages would double them: of the Kubernetes client, a start imports a fiftieth. The bytecode carries a hash in the
place of a time, so the same sources give the same layer.
"""

import importlib
import py_compile
import sys
from pathlib import Path


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    sources = sorted(
        {
            file
            for module in list(sys.modules.values())
            if (file := str(getattr(module, "__file__", None))).endswith(".py") and file.startswith(sys.prefix)
        }
    )
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = [py_compile.compile(source, doraise=True, invalidation_mode=mode) for source in sources]
    size = sum(Path(path).stat().st_size for path in compiled if path)
    print(f"compiled {len(compiled)} imported modules: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
