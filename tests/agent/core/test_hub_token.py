"""The hub's token under every name that guides use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.core.hub_token import TOKEN_VARIABLES, adopt_hub_token

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", TOKEN_VARIABLES)
@pytest.mark.parametrize("written", ["hf_abc", " 'hf_abc' ", '"hf_abc"', '"hf_abc" # mine', "hf_abc # mine"])
def test_it_is_found_in_the_environment_and_in_a_file(name: str, written: str, tmp_path: Path) -> None:
    dotenv = tmp_path / ".env"
    environment = {name: written}
    assert adopt_hub_token(environment, dotenv) == f"the variable {name}"
    assert environment["HF_TOKEN"] == "hf_abc"
    dotenv.write_text(f"OTHER=1\nexport {name}={written}\n")
    environment = {}
    assert adopt_hub_token(environment, dotenv) == f"{name} in {dotenv}"
    assert environment == {"HF_TOKEN": "hf_abc"}


def test_what_is_set_counts_before_a_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HF_TOKEN=hf_file\n")
    environment = {"HUGGINGFACE_TOKEN": "hf_set"}
    adopt_hub_token(environment, tmp_path / ".env")
    assert environment["HF_TOKEN"] == "hf_set"


@pytest.mark.parametrize("text", ["", "HF_TOKEN=\n", "HF_TOKEN\n", "hf_token=x\n"])
def test_none_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(text)
    environment = {"HF_TOKEN": " "}
    assert adopt_hub_token(environment, tmp_path / ".env") == ""
    assert environment == {"HF_TOKEN": " "}
