"""Show variants side by side, in tables and charts of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from actions.comparison.variant_numbers import load_speedup_stderr, speedup_stddev
from agent.store.exhibits import Cell, Chart, Column, Exhibits, Point, Row, Series, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actions.comparison.accuracy_difference import Difference
    from actions.comparison.variant_numbers import Load, VariantNumbers

_USERS = Column("Users at once", "count")


@dataclass(frozen=True)
class MatrixEffect:
    """A variant made with an importance matrix, and its twin made without.

    Args:
        variant: the variant made with the matrix.
        twin: the variant made without.
        accuracy: the difference of their accuracies; None if unknown.
    """

    variant: VariantNumbers
    twin: VariantNumbers
    accuracy: Difference | None

    @property
    def perplexity_change(self) -> float | None:
        """Perplexity with the matrix minus perplexity without; None if one of them is unknown."""
        values = self.variant.perplexity, self.twin.perplexity
        return None if values[0] is None or values[1] is None else values[0] - values[1]


def exhibits(
    variants: Sequence[VariantNumbers],
    differences: Mapping[str, Difference],
    significance: float,
    effects: Sequence[MatrixEffect] = (),
) -> Exhibits:
    """Return the tables and charts.

    Args:
        variants: the variants, baseline first.
        differences: difference of each variant's accuracy to the baseline's.
        significance: the p value below which a difference is more than noise.
        effects: effect of the importance matrix, for each variant that was made with and without it.
    """
    tables = _tables(variants, differences, significance)
    return Exhibits((*tables, *_matrix_table(effects, significance)), _charts(variants))


def _matrix_table(effects: Sequence[MatrixEffect], significance: float) -> tuple[Table, ...]:
    """Return a table of the variants made with and without a matrix; nothing if there are none."""
    columns: list[tuple[Column, Callable[[MatrixEffect], Cell]]] = [
        (
            Column("Perplexity, with", ""),
            lambda one: Cell(one.variant.perplexity, one.variant.perplexity_stderr),
        ),
        (
            Column("Perplexity, without", ""),
            lambda one: Cell(one.twin.perplexity, one.twin.perplexity_stderr),
        ),
        (Column("Perplexity, change", ""), lambda one: Cell(one.perplexity_change)),
        (
            Column("Right answers, with", "ratio"),
            lambda one: Cell(one.variant.accuracy, one.variant.accuracy_stderr),
        ),
        (
            Column("Right answers, without", "ratio"),
            lambda one: Cell(one.twin.accuracy, one.twin.accuracy_stderr),
        ),
        (Column("Right answers, change", "ratio"), lambda one: _difference(one.accuracy, significance)),
    ]
    measured = [(column, [cell(one) for one in effects]) for column, cell in columns]
    filled = [entry for entry in measured if any(cell.value is not None for cell in entry[1])]
    if not filled:
        return ()
    rows = tuple(
        Row(one.variant.name, tuple(cells[place] for _, cells in filled)) for place, one in enumerate(effects)
    )
    note = "The same type with the importance matrix, and without it (the name ends with -PLAIN)."
    columns_shown = tuple(column for column, _ in filled)
    return (Table("What the importance matrix changes", "Variant", columns_shown, rows, note),)


def _tables(
    variants: Sequence[VariantNumbers], differences: Mapping[str, Difference], significance: float
) -> tuple[Table, ...]:
    baseline = variants[0]
    columns: list[tuple[Column, Callable[[VariantNumbers], Cell]]] = [
        (Column("Size", "bytes"), lambda one: Cell(one.size_bytes)),
        (
            Column(f"Size, {baseline.name} = 1", "times"),
            lambda one: Cell(_ratio(one.size_bytes, baseline.size_bytes)),
        ),
        (Column("Right answers", "ratio"), lambda one: Cell(one.accuracy, one.accuracy_stderr)),
        (
            Column(f"Difference to {baseline.name}", "ratio"),
            lambda one: _difference(differences.get(one.name), significance),
        ),
        (Column("Perplexity", ""), lambda one: Cell(one.perplexity, one.perplexity_stderr)),
        (
            Column("Prompt, engine alone", "tokens/s"),
            lambda one: Cell(one.prompt_tokens_per_s, one.prompt_stddev),
        ),
        (
            Column("Generation, engine alone", "tokens/s"),
            lambda one: Cell(one.generation_tokens_per_s, one.generation_stddev),
        ),
        (
            Column(f"Generation, {baseline.name} = 1", "times"),
            lambda one: Cell(
                _ratio(one.generation_tokens_per_s, baseline.generation_tokens_per_s),
                speedup_stddev(one, baseline, "generation"),
            ),
        ),
    ]
    for users in _users(variants):
        columns += _load_columns(users, baseline)
    measured = [
        # The baseline is 1 times itself, which says nothing.
        (column, [Cell() if one is baseline and column.unit == "times" else cell(one) for one in variants])
        for column, cell in columns
    ]
    filled = [entry for entry in measured if any(cell.value is not None for cell in entry[1])]
    rows = tuple(
        Row(one.name, tuple(cells[place] for _, cells in filled)) for place, one in enumerate(variants)
    )
    note = ""
    if differences:
        tests = " and ".join(sorted({difference.test for difference in differences.values()}))
        note = f"Differences of right answers by {tests}; within the noise: p is at least {significance:g}."
    if any(one.prompt_stddev is not None or one.generation_stddev is not None for one in variants):
        note = f"{note} Of speeds, ± is one standard deviation over the repetitions.".strip()
    if any(load.tokens_stderr is not None for one in variants for load in one.loads.values()):
        note = f"{note} With users, ± is the standard error.".strip()
    return (Table("Variants side by side", "Variant", tuple(column for column, _ in filled), rows, note),)


def _load_columns(
    users: int, baseline: VariantNumbers
) -> list[tuple[Column, Callable[[VariantNumbers], Cell]]]:
    name = f"{users} user{'s' * (users > 1)}"

    def of(one: VariantNumbers) -> float | None:
        return one.loads[users].tokens_per_s if users in one.loads else None

    return [
        (
            Column(f"{name}, output", "tokens/s"),
            lambda one: Cell(of(one), one.loads[users].tokens_stderr if users in one.loads else None),
        ),
        (
            Column(f"{name}, {baseline.name} = 1", "times"),
            lambda one: Cell(_ratio(of(one), of(baseline)), load_speedup_stderr(one, baseline, users)),
        ),
        (
            Column(f"{name}, first token", "seconds"),
            lambda one: Cell(one.loads[users].ttft_s if users in one.loads else None),
        ),
    ]


def _difference(difference: Difference | None, significance: float) -> Cell:
    if difference is None:
        return Cell()
    verdict = "larger than the noise" if difference.p_value < significance else "within the noise"
    return Cell(difference.value, difference.stderr, f"{verdict}, p {difference.p_value:.2g}")


def _ratio(value: float | None, before: float | None) -> float | None:
    return value / before if value is not None and before else None


def _users(variants: Sequence[VariantNumbers]) -> list[int]:
    return sorted({users for one in variants for users in one.loads})


def _charts(variants: Sequence[VariantNumbers]) -> tuple[Chart, ...]:
    charts = [
        _quality("Right answers", "ratio", variants, lambda one: (one.accuracy, one.accuracy_stderr)),
        _quality("Perplexity", "", variants, lambda one: (one.perplexity, one.perplexity_stderr)),
        _load("Output tokens", "tokens/s", variants, lambda load: load.tokens_per_s),
        _load("Output tokens, each user", "tokens/s", variants, lambda load: load.tokens_per_s_per_user),
        _load("Time to first token", "seconds", variants, lambda load: load.ttft_s),
        _load("Time per output token", "seconds", variants, lambda load: load.tpot_s),
    ]
    return tuple(chart for chart in charts if any(series.points for series in chart.series))


def _quality(
    title: str,
    unit: str,
    variants: Sequence[VariantNumbers],
    quality: Callable[[VariantNumbers], tuple[float | None, float | None]],
) -> Chart:
    """Chart quality against speed: the engine's alone, or that of one user if the engine was not timed."""
    alone = all(one.generation_tokens_per_s is not None for one in variants)

    def speed(one: VariantNumbers) -> float | None:
        if alone:
            return one.generation_tokens_per_s
        fewest = min(one.loads, default=0)
        return one.loads[fewest].tokens_per_s if fewest else None

    series = []
    for one in variants:
        value, error = quality(one)
        rate = speed(one)
        points = () if value is None or rate is None else (Point(rate, value, error, one.name),)
        series.append(Series(one.name, points))
    x = Column("Generation, engine alone" if alone else "Output, fewest users", "tokens/s")
    return Chart(f"{title} against speed", x, Column(title, unit), tuple(series), joined=False)


def _load(
    title: str, unit: str, variants: Sequence[VariantNumbers], of: Callable[[Load], float | None]
) -> Chart:
    series = tuple(
        Series(
            one.name,
            tuple(
                Point(users, value)
                for users, load in sorted(one.loads.items())
                if (value := of(load)) is not None
            ),
        )
        for one in variants
    )
    return Chart(f"{title} against users", _USERS, Column(title, unit), series)
