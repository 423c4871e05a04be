"""Write the rows of a Parquet file as JSON lines; runs in an environment that has pyarrow.

``parquet_rows.py PARQUET OUT``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

NO_PYARROW = 3
"""Exit code if the environment lacks pyarrow."""


def main() -> int:
    """Write the rows of the given file."""
    try:
        from pyarrow import parquet
    except ImportError:
        return NO_PYARROW
    target = Path(sys.argv[2])
    target.unlink(missing_ok=True)
    with target.open("x", encoding="utf-8") as out:
        for batch in parquet.ParquetFile(sys.argv[1]).iter_batches():
            out.writelines(f"{json.dumps(row)}\n" for row in batch.to_pylist())
    return 0


if __name__ == "__main__":
    sys.exit(main())
