"""Names of cases without the numbers of their rounds, so that rounds are repeats of one case."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.store.documents import CasePart

_NUMBER = re.compile(r"#\d+$")


def scenarios_without_rounds(cases: Sequence[CasePart]) -> dict[str, str]:
    """Return each case's scenario name without the number of its round.

    The second case with a name is ``name#2``, whether it belongs to the second round or is another case of
    the first; the number of its round precedes its step's key.
    """
    names: dict[str, str] = {}
    counts: dict[tuple[str, str], int] = {}
    for case in cases:
        base = _NUMBER.sub("", case.scenario)
        step = str((case.model_extra or {}).get("step", ""))
        place = (base, step.partition(":")[0] if ":" in step else "")
        counts[place] = counts.get(place, 0) + 1
        names[case.scenario] = base if counts[place] == 1 else f"{base}#{counts[place]}"
    return names
