"""An installed vcagent contains every data file that the code reads."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("agent", "actions", "dependencies", "parsers", "profiles", "gpu_configs")


def test_every_file_of_data_is_in_the_distribution() -> None:
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    patterns = {
        package: [pattern.strip() for pattern in names.split(",")]
        for package, names in settings["options.package_data"].items()
    }
    packaged = set()
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for folder in {path.parent for path in files if path.name == "__init__.py"}:
        package = ".".join(folder.relative_to(ROOT).parts)
        for pattern in (*patterns["*"], *patterns.get(package, ())):
            packaged |= set(folder.glob(pattern))
    data = {path for path in files if path.suffix not in {".py", ".pyc"}}
    assert data - packaged == set()
