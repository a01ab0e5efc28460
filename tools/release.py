"""Writes what a release consists of to dist/, beside the wheels that are there: `release.py --registry <host>/<path>`.

install.yaml (CRD, permissions and operator, its image by the digest that was pushed), NOTES.md (CHANGELOG's newest
section and the images' digests) and SHA256SUMS. The same commit and images give the same bytes. Undo: remove dist/.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PROGRAMS = ("operator", "training", "inference")


class Missing(Exception):
    """Something that a release needs is not there; the message says what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry", default="localhost:5001/qmljob", help="where the images were pushed to")
    registry = parser.parse_args().registry
    try:
        version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
        images = {program: pushed_image(f"{registry}/{program}", version) for program in PROGRAMS}
        files = {
            "install.yaml": install_manifest(version, images["operator"]),
            "NOTES.md": notes(version, images, (ROOT / "CHANGELOG.md").read_text("utf-8")),
        }
        for name, text in files.items():
            (DIST / name).write_text(text, "utf-8")
        (DIST / "SHA256SUMS").write_text(checksums(), "utf-8")
    except Missing as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(DIST.iterdir()):
        print(path.relative_to(ROOT))
    if registry.startswith("localhost"):
        print(f"release: install.yaml takes its image from {registry}, which nobody else reaches: REGISTRY=…")
    return 0


def pushed_image(name: str, version: str) -> str:
    """Returns `name@sha256:…` of the image that was last pushed under that name."""
    command = ["docker", "image", "inspect", "--format", "{{range .RepoDigests}}{{println .}}{{end}}"]
    try:
        done = subprocess.run([*command, f"{name}:{version}"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Missing("docker is not found on the PATH: it knows the digests of what was pushed") from error
    for digest in done.stdout.split():
        if digest.startswith(f"{name}@"):
            return digest
    raise Missing(f"{name}:{version} was not pushed from here; run `make images push` with the same REGISTRY first")


def install_manifest(version: str, image: str) -> str:
    """Returns manifests/base as one file, with the operator's image by its digest."""
    try:
        command = ["kubectl", "kustomize", "manifests/base"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Missing("kubectl is not found on the PATH: it puts manifests/base together") from error
    if done.returncode:
        raise Missing(f"manifests/base can't be put together: {done.stderr.strip()}")
    text, count = re.subn(r"(?m)^(\s*(?:- )?image: ).*/operator:.*$", rf"\g<1>{image}", done.stdout)
    if count != 1:
        raise Missing(f"manifests/base names the operator's image {count} times; it should do so once")
    return f"# QMLJob {version}: kubectl apply --server-side -f install.yaml\n{text}"


def notes(version: str, images: dict[str, str], changelog: str) -> str:
    """Returns the changelog's newest section, and where the images are."""
    section = re.search(r"(?ms)^## (?P<title>[^\n]*)\n(?P<body>.*?)(?=^## |\Z)", changelog)
    if section is None:
        raise Missing("CHANGELOG.md has no section; it needs one that begins with '## '")
    table = "\n".join(f"| {program} | `{image}` |" for program, image in images.items())
    return (
        f"# QMLJob {version}\n\n"
        "    kubectl apply --server-side -f install.yaml\n\n"
        f"{section['body'].strip()}\n\n"
        f"## Images\n\n| Program | Image |\n| --- | --- |\n{table}\n"
    )


def checksums() -> str:
    """Returns a line for each file of dist/, as `sha256sum --check` reads them."""
    files = sorted(path for path in DIST.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


if __name__ == "__main__":
    sys.exit(main())
