"""A pickled table is read without pandas, and without running anything of the file."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from dependencies.models.in_environment.model_files import pickled_table
from dependencies.models.in_environment.model_files.errors import ModelFilesError
from dependencies.models.in_environment.model_files.pickled_table import read_table

TABLES = Path(__file__).with_name("tables")
TABLE = {
    "input": ["[INST] One? [/INST]", "[INST] Two \u2013 2? [/INST]", "[INST] Three? [/INST]"],
    "output": ["First answer.", "Second answer, longer.", "Third answer."],
    "tok_input": [[1, 518, 25580], [1, 518], [1, 29961, 29871, 32000]],
    "tok_input_length": [3, 2, 4],
    "tok_output_length": [5, 6, 7],
    "score": [0.5, 0.25, 1.0],
}


@pytest.mark.parametrize(
    "name", ["pandas_2.3_protocol_4.pkl", "pandas_2.3_protocol_5.pkl", "pandas_3.1_objects.pkl"]
)
def test_tables_of_pandas(name: str) -> None:
    assert read_table(TABLES / name, TABLE) == TABLE
    assert read_table(TABLES / name, ["output", "no such column"]) == {"output": TABLE["output"]}


def test_gzip(tmp_path: Path) -> None:
    path = tmp_path / "processed-data.pkl.gz"
    path.write_bytes(gzip.compress((TABLES / "pandas_2.3_protocol_4.pkl").read_bytes()))
    assert read_table(path, TABLE) == TABLE
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ModelFilesError, match="cannot be read as a pickled table"):
        read_table(path, TABLE)


def test_a_form_that_only_pandas_reads_is_refused_with_a_remedy() -> None:
    with pytest.raises(ModelFilesError, match="newer pandas") as caught:
        read_table(TABLES / "pandas_3.1_arrow.pkl", TABLE)
    assert "to_parquet" in caught.value.remedy


def test_a_categorical_column_is_refused_only_if_it_is_wanted() -> None:
    with pytest.raises(ModelFilesError, match="the column origin is in a form"):
        read_table(TABLES / "pandas_2.3_protocol_4.pkl", ["origin"])


class Named:
    """Pickle as the call of any function, which need not exist here."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> Any:
        return print, self.arguments


def naming(module: str, name: str, *arguments: Any) -> bytes:
    """Return a pickle that calls a function by name."""
    data = pickle.dumps(Named(*arguments), protocol=0)
    assert data.startswith(b"c__builtin__\nprint\n")
    return data.replace(b"c__builtin__\nprint\n", f"c{module}\n{name}\n".encode(), 1)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("__builtin__", "exec"),
        ("subprocess", "Popen"),
        ("pandasx", "f"),
    ],
)
def test_a_pickle_that_calls_something_is_refused_and_nothing_runs(
    tmp_path: Path, module: str, name: str
) -> None:
    path, witness = tmp_path / "table.pkl", tmp_path / "ran"
    path.write_bytes(naming(module, name, f"touch {witness}"))
    with pytest.raises(ModelFilesError, match=f"asks for {module}.{name}") as caught:
        read_table(path, ["input"])
    assert "nothing of it was run" in caught.value.message
    assert not witness.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [("numpy.testing._private.utils", "runstring"), ("pandas", "read_csv"), ("numpy", "load")],
)
def test_functions_of_the_libraries_are_inert(tmp_path: Path, module: str, name: str) -> None:
    path, witness = tmp_path / "table.pkl", tmp_path / "ran"
    path.write_bytes(naming(module, name, f"open({str(witness)!r}, 'w')"))
    with pytest.raises(ModelFilesError, match="something else than a pandas table"):
        read_table(path, ["input"])
    assert not witness.exists()


def test_another_pickle_and_another_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.pkl"
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(ModelFilesError, match="something else than a pandas table"):
        read_table(path, ["input"])
    for content in (b"", b"not a pickle", b"\x1f\x8bnot gzip"):
        path.write_bytes(content)
        with pytest.raises(ModelFilesError, match="cannot be read as a pickled table"):
            read_table(path, ["input"])


def test_arrays_of_other_orders(tmp_path: Path) -> None:
    """Read columns in Fortran's order, and of the other byte order, as older tables have them."""
    made = pickled_table._Array()
    dtype = pickled_table._Dtype(">i4")
    made.__setstate__((1, (2, 3), dtype, True, b"".join(n.to_bytes(4, "big") for n in (1, 4, 2, 5, 3, 6))))
    assert [made.values(0), made.values(1)] == [[1, 2, 3], [4, 5, 6]]
    made.__setstate__((1, (2, 3), dtype, False, b"".join(n.to_bytes(4, "big") for n in range(6))))
    assert [made.values(0), made.values(1)] == [[0, 1, 2], [3, 4, 5]]


def test_the_form_of_pandas_before_1_3() -> None:
    values, labels = pickled_table._Array(), pickled_table._Array()
    values.__setstate__((1, (1, 2), pickled_table._Dtype("O8"), False, ["a", "b"]))
    labels.__setstate__((1, (1,), pickled_table._Dtype("O8"), False, ["output"]))
    manager = pickled_table._Manager()
    axes = [pickled_table._Index(None, {"data": labels}), pickled_table._Index(None, {"start": 0})]
    manager.__setstate__(
        (
            None,
            None,
            None,
            {"0.14.1": {"axes": axes, "blocks": [{"values": values, "mgr_locs": slice(0, 1, 1)}]}},
        )
    )
    frame = pickled_table._Frame()
    frame.__setstate__({"_data": manager})
    assert frame.columns()["output"].values() == ["a", "b"]
