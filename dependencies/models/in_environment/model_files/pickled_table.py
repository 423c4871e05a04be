"""Read a pickled pandas table without running anything of the file, and without pandas.

A pickle names the functions that build its content, so a hostile one can run any program. Here each name
leads to an inert stand-in of this file: what a table needs is kept, everything else is passed over, and a
name outside pandas, NumPy and pyarrow is refused. Sources: pandas (``core/internals/managers.py``,
``_libs/internals.pyx``, ``core/indexes/base.py``) and NumPy (``array_reduce``, ``array_setstate`` and
``arraydescr_reduce`` of ``_core/src/multiarray``).
"""

from __future__ import annotations

import gzip
import pickle
import sys
import zlib
from array import array
from typing import TYPE_CHECKING, Any

from .errors import ModelFilesError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_GZIP = b"\x1f\x8b"
_LIBRARIES = ("pandas", "numpy", "pyarrow")
_TYPECODES = {"b1": "B", "i1": "b", "u1": "B", "i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}
_ARROW = (
    'write it as parquet where it was made: python -c "import pandas; '
    "pandas.read_pickle('FILE').to_parquet('FILE.parquet')\""
)


def read_table(path: Path, columns: Iterable[str]) -> dict[str, list[Any]]:
    """Return the columns of a pickled table that it has, as lists.

    Args:
        path: the file, which may be compressed with gzip.
        columns: the names of the columns to read.

    Raises:
        ModelFilesError: (``dataset``) if the file is not a pickled table, or names anything else.
    """
    try:
        with path.open("rb") as raw:
            is_compressed = raw.read(2) == _GZIP
        with gzip.open(path) if is_compressed else path.open("rb") as file:
            frame = _Reader(file).load()
        if not isinstance(frame, _Frame):
            raise ModelFilesError(
                "dataset", f"{path} is a pickle of something else than a pandas table", "name another file"
            )
        found = frame.columns()
        return {name: found[name].values() for name in columns if name in found}
    except (
        OSError, EOFError, zlib.error, pickle.UnpicklingError, ValueError, KeyError, TypeError, IndexError,
        AttributeError, OverflowError, MemoryError,
    ) as error:  # fmt: skip
        raise ModelFilesError(
            "dataset",
            f"{path} cannot be read as a pickled table: {type(error).__name__}: {error}",
            f"it was cut, or is of another format: fetch it again, or {_ARROW}",
        ) from error


class _Inert:
    """Stand in for anything of the libraries that a table's content does not need."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Ignore how it is made."""

    def __setstate__(self, _: Any) -> None:
        """Ignore what it holds."""


class _Dtype:
    """A type of an array's items: the kind and size (``i8``, ``O8``), and the order of its bytes."""

    def __init__(self, name: Any = "", *_: Any) -> None:
        self.name = str(name).lstrip("<>|=")
        self.is_swapped = str(name)[:1] == (">" if sys.byteorder == "little" else "<")

    def __setstate__(self, state: Any) -> None:
        self.is_swapped = state[1] == (">" if sys.byteorder == "little" else "<")


class _Array:
    """An array of one or two dimensions."""

    def __init__(self, *_: Any) -> None:
        self.shape: tuple[int, ...] = ()
        self._items: Sequence[Any] = ()
        self._is_fortran = False

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        self._set(data, dtype, shape, is_fortran=bool(is_fortran))

    @classmethod
    def from_buffer(cls, data: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> _Array:
        """Return an array as NumPy's ``_frombuffer`` does."""
        made = cls()
        made._set(data, dtype, shape, is_fortran=order == "F")
        return made

    def _set(self, data: Any, dtype: Any, shape: Any, *, is_fortran: bool) -> None:
        self.shape = tuple(int(size) for size in shape)
        if not isinstance(dtype, _Dtype):
            raise TypeError("an array of an unknown type")
        if isinstance(data, list):  # objects, always in C's order
            self._items = data
            return
        items = array(_TYPECODES[dtype.name])
        items.frombytes(bytes(data))
        if dtype.is_swapped:
            items.byteswap()
        self._items, self._is_fortran = items, is_fortran

    def values(self, row: int | None = None) -> list[Any]:
        """Return the items of one row of a table's block, or of an array of one dimension."""
        if row is None:
            found = list(self._items)
        elif self._is_fortran:
            found = list(self._items[row :: self.shape[0]])
        else:
            width = self.shape[1]
            found = list(self._items[row * width : (row + 1) * width])
        return [item.values() if isinstance(item, _Array) else item for item in found]


class _Index:
    """The labels of an axis."""

    def __init__(self, kind: Any = None, state: Any = None) -> None:
        del kind
        state = state if isinstance(state, dict) else {}
        self._data = state.get("data")

    @property
    def labels(self) -> list[Any]:
        """Return the labels.

        Raises:
            ModelFilesError: (``dataset``) if they are in a form that only pandas can read.
        """
        if not isinstance(self._data, _Array):
            raise ModelFilesError(
                "dataset", "the names of the columns are in a form of a newer pandas", _ARROW
            )
        return self._data.values()


class _Block:
    """Columns of one type, as rows of an array, and the places of these columns in the table."""

    def __init__(self, values: Any = None, places: Any = None, *_: Any, **more: Any) -> None:
        self.array, self._places = values, more.get("placement", places)

    @property
    def places(self) -> list[int]:
        """Return the places of its columns."""
        if isinstance(self._places, slice):
            start, stop, step = self._places.start, self._places.stop, self._places.step
            return list(range(start or 0, stop, step or 1))
        return self._places.values() if isinstance(self._places, _Array) else [int(self._places)]


class _Manager:
    """The blocks of a table and its axes."""

    def __init__(self, blocks: Any = (), axes: Any = (), *_: Any) -> None:
        self.blocks, self.axes = blocks, axes

    def __setstate__(self, state: Any) -> None:
        """Take the form of pandas before 1.3."""
        known = state[3]["0.14.1"]
        self.axes = known["axes"]
        self.blocks = [_Block(block["values"], block["mgr_locs"]) for block in known["blocks"]]


class _Column:
    """One column of a table."""

    def __init__(self, name: str, block: _Block, row: int) -> None:
        self._name, self._block, self._row = name, block, row

    def values(self) -> list[Any]:
        """Return its values.

        Raises:
            ModelFilesError: (``dataset``) if they are in a form that only pandas can read.
        """
        kept = self._block.array
        if not isinstance(kept, _Array):
            raise ModelFilesError(
                "dataset", f"the column {self._name} is in a form of a newer pandas", _ARROW
            )
        return kept.values(self._row if len(kept.shape) > 1 else None)


class _Frame:
    """A table."""

    def __init__(self, *_: Any) -> None:
        self._manager: Any = None

    def __setstate__(self, state: Any) -> None:
        self._manager = state.get("_mgr") or state.get("_data")

    def columns(self) -> Mapping[str, _Column]:
        """Return the columns by name."""
        manager = self._manager
        names = list(map(str, manager.axes[0].labels))
        return {
            names[place]: _Column(names[place], block, row)
            for block in manager.blocks
            for row, place in enumerate(block.places)
        }


_KNOWN: Mapping[tuple[str, str], Any] = {
    ("pandas", "DataFrame"): _Frame,
    ("pandas", "BlockManager"): _Manager,
    ("pandas", "_unpickle_block"): _Block,
    ("pandas", "new_block"): _Block,
    ("pandas", "_new_Index"): _Index,
    ("numpy", "_reconstruct"): _Array,
    ("numpy", "_frombuffer"): _Array.from_buffer,
    ("numpy", "dtype"): _Dtype,
}
_BUILT_IN: Mapping[str, Any] = {"slice": slice, "bytearray": bytearray}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name in the file."""
        if module in {"builtins", "__builtin__"} and name in _BUILT_IN:
            return _BUILT_IN[name]
        library = module.partition(".")[0]
        if library not in _LIBRARIES:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which is not a part of a table; nothing of it was run"
            )
        return _KNOWN.get((library, name), _Inert)
