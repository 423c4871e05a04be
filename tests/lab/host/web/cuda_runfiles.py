"""Stub CUDA runfiles: shell scripts with the real options, and broken ones.

Options: CUDA Installation Guide for Linux, "Runfile Installation", "Advanced Options".
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RUNFILES", "write_runfiles"]

RUNFILES = {
    "12.0.0": "cuda_12.0.0_525.60.13_linux.run",
    "12.4.0": "cuda_12.4.0_550.54.14_linux.run",
    "12.8.0": "cuda_12.8.0_570.86.10_linux.run",
}
"""Runfiles by toolkit version; their names contain the version of the driver that comes with them."""

FAILING = "cuda_12.4.1_550.54.15_linux.run"
"""Exits with 1 and writes the reason to /var/log/cuda-installer.log."""

_SCRIPT = r"""#!/bin/sh
# A stub of NVIDIA's runfile for tests: it installs two files and no software.
version=@VERSION@
path=/usr/local/cuda-${version%.*}
toolkit= driver=
for argument; do
  case $argument in
    --silent | --override | --no-man-page | --no-opengl-libs | --no-drm) ;;
    --toolkit) toolkit=yes ;;
    --driver) driver=yes ;;
    --toolkitpath=* | --installpath=*) path=${argument#*=} ;;
    --defaultroot=* | --tmpdir=* | --extract=*) ;;
    --help) echo "Options: --silent --driver --toolkit --toolkitpath=<path> --override"; exit 0 ;;
    *) echo "Unrecognized option: $argument" >&2; exit 1 ;;
  esac
done
echo "[INFO]: Driver not installed." >/var/log/cuda-installer.log
@FAILURE@
if [ -n "$driver" ] && [ -d /sys/module/nvidia ]; then
  echo "[ERROR]: An NVIDIA kernel module 'nvidia-drm' appears to already be loaded in your kernel." \
    | tee /var/log/nvidia-installer.log >>/var/log/cuda-installer.log
  echo " Installation failed. See log at /var/log/cuda-installer.log for details."
  exit 1
fi
if [ -n "$toolkit" ]; then
  mkdir -p "$path/bin" "$path/lib64"
  printf '{"cuda": {"name": "CUDA SDK", "version": "%s"}}\n' "$version" >"$path/version.json"
  echo "#!/bin/sh
echo 'Cuda compilation tools, release ${version%.*}, V$version'" >"$path/bin/nvcc"
  chmod +x "$path/bin/nvcc"
  ln -sfn "$path" /usr/local/cuda
fi
echo "[INFO]: Finished" >>/var/log/cuda-installer.log
exit 0
"""
_FAILURE = """
echo "[ERROR]: Install of driver component failed. Unable to build the kernel module." \\
  >>/var/log/cuda-installer.log
echo " Installation failed. See log at /var/log/cuda-installer.log for details."
exit 1
"""
_PADDING = b"#" * 1023 + b"\n"


def write_runfiles(root: Path) -> None:
    """Write the runfiles, with NVIDIA's list of checksums, below ``root/compute/cuda/<version>``.

    Only half of 12.8 is sent, as if the connection were lost, unless only the other half is requested.
    """
    for version, name in RUNFILES.items():
        _write(root, version, name, "")
    _write(root, "12.4.1", FAILING, _FAILURE)
    (root / "compute/cuda/12.8.0/local_installers" / f"{RUNFILES['12.8.0']}.cut").touch()


def _write(root: Path, version: str, name: str, failure: str) -> None:
    script = _SCRIPT.replace("@VERSION@", version).replace("@FAILURE@", failure).encode() + _PADDING * 512
    folder = root / "compute/cuda" / version
    (folder / "local_installers").mkdir(parents=True)
    (folder / "local_installers" / name).write_bytes(script)
    (folder / "docs/sidebar").mkdir(parents=True)
    checksum = hashlib.md5(script, usedforsecurity=False).hexdigest()
    (folder / "docs/sidebar/md5sum.txt").write_text(f"{checksum}  {name}\n")
