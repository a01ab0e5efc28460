"""The programs of a control plane: kube-apiserver, etcd and kubectl.

They are taken from the first of these places that has them: `$KUBEBUILDER_ASSETS`, the cache, a download by
setup-envtest where the internet is reached, a build from the pinned Go modules beside this file.
"""

import os
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from support.go_programs import GoModule, built_programs, cache_folder, cached_programs, locked, say

_KUBERNETES = GoModule(
    "kube-apiserver",
    "k8s.io/kubernetes",
    {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kubectl")},
    # Without this a build from modules calls itself v0.0.0.
    link="-X k8s.io/component-base/version.gitVersion={version} -X k8s.io/component-base/version.gitTreeState=clean",
)
_ETCD = GoModule("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"})
_SETUP_TOOL = "sigs.k8s.io/controller-runtime/tools/setup-envtest"
_SETUP = GoModule("setup-envtest", _SETUP_TOOL, {"setup-envtest": _SETUP_TOOL})
_INDEX = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
_INDEX_SECONDS = 5
_DOWNLOAD_SECONDS = 180

KUBERNETES_VERSION = _KUBERNETES.version
"""What is downloaded or built, `v1.34.4` for one; `$KUBEBUILDER_ASSETS` may hold another one."""


@dataclass(frozen=True)
class Programs:
    """Where a control plane's programs are."""

    kube_apiserver: Path
    etcd: Path
    kubectl: Path

    @classmethod
    def of(cls, *folders: Path) -> "Programs":
        """The programs in these folders, the first folder that has one wins.

        Raises:
            FileNotFoundError: one is in none of them; the message names it.
        """
        found = {}
        for name in ("kube-apiserver", "etcd", "kubectl"):
            path = next((folder / name for folder in folders if (folder / name).exists()), None)
            if path is None:
                raise FileNotFoundError(f"{name} is not in {', '.join(map(str, folders))}")
            found[name.replace("-", "_")] = path
        return cls(**found)


def control_plane_programs(*, index: str = _INDEX) -> Programs:
    """Returns a control plane's programs; the first time on a machine that takes minutes, and it says so.

    Raises:
        RuntimeError: `$KUBEBUILDER_ASSETS` lacks a program, or they could neither be downloaded nor built.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        try:
            return Programs.of(Path(assets))
        except FileNotFoundError as error:
            raise RuntimeError(f"KUBEBUILDER_ASSETS: {error}; unset it, or complete that folder") from None
    with locked(cache_folder()):
        return _cached() or _downloaded(index) or _built()


def _cached() -> Programs | None:
    for folders in ((cached_programs(_KUBERNETES), cached_programs(_ETCD)), (_download_folder(),)):
        try:
            return Programs.of(*folders)
        except FileNotFoundError:
            continue
    return None


def _download_folder() -> Path:
    return cache_folder() / "envtest" / "k8s" / f"{KUBERNETES_VERSION.removeprefix('v')}-linux-amd64"


def _downloaded(index: str) -> Programs | None:
    """Downloads the programs; None where that can't be done, which is told within seconds."""
    try:
        with urllib.request.urlopen(index, timeout=_INDEX_SECONDS) as answer:
            offered = f"envtest-{KUBERNETES_VERSION}-linux-amd64" in answer.read().decode()
    except (OSError, UnicodeDecodeError):
        return None
    if not offered:
        return None
    say(f"downloading kube-apiserver, etcd and kubectl {KUBERNETES_VERSION}, once; kept in {_download_folder()}")
    tool = built_programs(_SETUP) / "setup-envtest"
    version = KUBERNETES_VERSION.removeprefix("v")
    store = str(cache_folder() / "envtest")
    command = [str(tool), "use", version, "--os=linux", "--arch=amd64", f"--bin-dir={store}", f"--index={index}"]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=_DOWNLOAD_SECONDS)
        return Programs.of(_download_folder())
    except subprocess.CalledProcessError as error:
        say(f"the download failed, so they are built: {error.stderr.strip()[-300:]}")
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        say(f"the download failed, so they are built: {error}")
    return None


def _built() -> Programs:
    return Programs.of(built_programs(_KUBERNETES), built_programs(_ETCD))
