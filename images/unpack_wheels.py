"""Puts pure wheels where this interpreter's packages are, below a folder: `unpack_wheels.py /rooms a.whl b.whl`.

Unpacking is all that installing a pure wheel without scripts means (PyPA's binary distribution format). Installers
would add files that name times and paths of the build, and the layer would never be the same twice.
"""

import compileall
import py_compile
import sys
import sysconfig
import zipfile
from pathlib import Path


def main() -> None:
    root, *wheels = sys.argv[1:]
    target = Path(root) / sysconfig.get_path("purelib").lstrip("/")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(target, quiet=1, stripdir=root, invalidation_mode=mode):
        sys.exit(f"{target}: not everything compiles (see above)")


if __name__ == "__main__":
    main()
