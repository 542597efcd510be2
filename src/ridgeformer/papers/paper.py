"""The shape of a paper: what it says, what is measured for it, and claims with the rules that can reject them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.errors import kind_of, refuse
from ridgeformer.plotting.panels import Panel, draw_panels
from ridgeformer.problems import BaseProblem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = Mapping[str, Any]  # what was measured, by the name of the part
NOTHING: Mapping[str, Any] = MappingProxyType({})
BEYOND = "Not checked here: "
LABEL = re.compile(r"^(Claim|Expected|Tolerance|Reason|Rule|Where): ", re.M)  # of texts in docstrings, see `said`
CHANCE = 4  # standard errors, which are exceeded once in 16,000 comparisons

Verdict = Literal["supported", "contradicted", "partly supported"]


class NotMeasuredError(LookupError):
    """A claim cannot be decided, because what it needs was not measured with these settings."""


class _Measured(dict[str, Any]):
    """Results by the name of the part; what was not measured is missing in a way that can be told apart."""

    def __missing__(self, name: str) -> Any:
        raise NotMeasuredError(name)


@dataclass(frozen=True)
class Check:
    """A claim, the measurements that decide it, and the verdict.

    Attributes:
        measured: The measured numbers, in words.
        expected: The published or computed numbers that they are compared with, in words. This text and each of the
            next three may be left to the docstring of the function; see `said`.
        tolerance: How far the measured numbers may be off, in words.
        reason: The reason for this tolerance.
        rule: The rule by which the claim is rejected.
        holds: Whether each part of the claim holds.
        published: The number that the authors published, in words; empty where they published none.
        where: The place of the claim in the paper; empty where the claim is about the paper as a whole.
        brief: The measured numbers in a few words, for the table of all papers; empty to use `measured`.
        claim: The claim in our words, which `Paper.decide` fills in.

    >>> Check("remainder 0", "0", "none", "It is an integer.", "the remainder is 1", (True,)).verdict
    'supported'
    """

    measured: str
    expected: str = ""
    tolerance: str = ""
    reason: str = ""
    rule: str = ""
    holds: Sequence[bool] = ()
    published: str = ""
    where: str = ""
    brief: str = ""
    claim: str = ""

    def __post_init__(self) -> None:
        if not self.holds:
            refuse("a check decides at least one part of its claim", "none", "Pass holds=[measured < expected].")
        object.__setattr__(self, "holds", tuple(map(bool, self.holds)))

    @property
    def verdict(self) -> Verdict:
        """`supported` if all parts hold, `contradicted` if none does, otherwise `partly supported`."""
        return decide(self.holds)

    def as_dict(self) -> dict[str, Any]:
        """Return the check, with its verdict, as values that JSON can hold."""
        return {"claim": self.claim, **asdict(self), "holds": list(self.holds), "verdict": self.verdict}


@dataclass(frozen=True)
class Part:
    """A piece of measuring, whose result is stored as JSON.

    Attributes:
        measure: Is called with the `Work` (see `running`) and with settings by name, and returns values that JSON can
            hold. The defaults of its keyword arguments are the settings of the full version.
        quick: The settings that differ in the quick version, by name.
        needs: The names of earlier parts whose results it reads from the `Work`.
    """

    measure: Callable[..., Any]
    quick: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := self.quick.keys() - self.settings().keys():
            known = ", ".join(self.settings()) or "none"
            refuse(f"the settings of {self.name} are {known}", ", ".join(sorted(unknown)), "Correct `quick`.")

    @property
    def name(self) -> str:
        """The name of the function that measures, which is also the name of the stored file."""
        return self.measure.__name__

    def settings(self, quick: bool = False, changes: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Return the settings of a version.

        Args:
            quick: Whether it is the quick version; by default the full one.
            changes: Settings that replace those of the version; names that this part does not have are left out.

        Returns:
            The settings by name.
        """
        parameters = list(inspect.signature(self.measure).parameters.values())[1:]
        usual = {one.name: one.default for one in parameters}
        return {**usual, **(self.quick if quick else {}), **{k: v for k, v in changes.items() if k in usual}}


@dataclass(frozen=True)
class Picture:
    """A figure of a paper, drawn from stored results.

    Attributes:
        draw: Is called with the results and returns a figure of matplotlib. Its docstring states the caption, after the
            first paragraph.
        note: What the caption says besides; nothing by default.
    """

    draw: Callable[[Results], Figure]
    note: str = ""

    @property
    def caption(self) -> str:
        """The caption of the picture."""
        return f"{stated(self.draw)} {self.note}".strip()


def panels(shown: Callable[[Results], Sequence[Panel]], columns: int = 3) -> Picture:
    """Return the figure that shows panels side by side.

    Args:
        shown: Is called with the results and returns the panels. Its docstring states the caption.
        columns: How many panels are side by side.

    Returns:
        The figure.
    """

    @functools.wraps(shown)
    def draw(results: Results) -> Figure:
        return draw_panels(shown(results), columns)

    return Picture(draw)


def said(function: Callable[..., Any]) -> dict[str, str]:
    """Return what the docstring of a function says after its first paragraph, each text on one line.

    Args:
        function: The function.

    Returns:
        The claim, the caption or another text, as `claim`; and the texts that begin on lines of their own with
        `Expected:`, `Tolerance:`, `Reason:`, `Rule:` or `Where:`, by these words in small letters.

    >>> def check(results):
    ...     '''Decide whether layers are steps. See `Paper`.
    ...
    ...     Layers are steps of gradient descent.
    ...
    ...     Rule: rejected where a layer is
    ...         no step
    ...     '''
    >>> said(check)
    {'claim': 'Layers are steps of gradient descent.', 'rule': 'rejected where a layer is no step'}
    """
    text = "Claim: \n" + (inspect.getdoc(function) or "").partition("\n\n")[2]
    _, *parts = LABEL.split(text)
    return {name.lower(): " ".join(words.split()) for name, words in zip(parts[::2], parts[1::2], strict=True)}


def stated(function: Callable[..., Any]) -> str:
    """Return what the docstring of a function states after its first paragraph: a claim, a caption, or another text.

    Args:
        function: The function.

    Returns:
        The text, on one line.
    """
    return said(function)["claim"]


@dataclass(frozen=True)
class Erratum:
    """A statement, a formula or a number of a paper or of its code that turned out to be different.

    Attributes:
        where: The place.
        says: The statement, in our words.
        correct: The correct statement.
        shown_by: The check or test that shows it.
    """

    where: str
    says: str
    correct: str
    shown_by: str


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper whose results are regenerated by one command.

    Attributes:
        id: The first author and the year, such as `zhang2024`.
        about: The prose, as paragraphs, usually the docstring of the module. The first one is a summary. The second
            one has the title, the authors as they are usually cited, and where the paper can be read, on lines of their
            own. Then follow what the paper says, in our words, and how the measurements bear on it: what is trained or
            computed here, what decides the claims, and what a reader should take from the figure. Paragraphs that begin
            with `Not checked here:` name claims that this package cannot check, with the reason.
        problems: The problems that it is about, by name.
        parts: What is measured, in this order; a later part may use the results of an earlier one.
        checks: Functions of the results, each of which decides the claim that its docstring states, in our words, after
            the first paragraph, with the texts of the `Check` that are the same for all results; see `said`. The first
            one is the paper's line in the table of all papers.
        pictures: The figures by name.
        errata: What is different from what the paper or its code says.
        version: A number that is increased when a part measures something else: stored results are then outdated.
        page: Writes a page of the paper's own into a folder, from its outcome, and returns its path; None for papers
            whose place is the page of all papers alone.

    Raises:
        InputError: The prose does not have these paragraphs.
    """

    id: str
    about: str
    problems: Mapping[str, BaseProblem]
    parts: tuple[Part, ...]
    checks: tuple[Callable[[Results], Check], ...]
    pictures: Mapping[str, Picture] = field(default_factory=lambda: NOTHING)
    errata: tuple[Erratum, ...] = ()
    version: int = 1
    page: Callable[[Any, Path], Path] | None = None

    def __post_init__(self) -> None:
        if len(self._prose) < 3 or len(self._prose[1]) < 3:
            rule = "a paper is described by a summary, by title, authors and link, and by what it says"
            refuse(rule, repr(self.about), "Write three paragraphs, the second one with three lines.")

    @property
    def _prose(self) -> list[list[str]]:
        """The lines of every paragraph."""
        return [paragraph.split("\n") for paragraph in inspect.cleandoc(self.about).split("\n\n")]

    @property
    def title(self) -> str:
        """The title."""
        return self._prose[1][0]

    @property
    def authors(self) -> str:
        """The authors, as they are usually cited."""
        return " ".join(self._prose[1][1:-1])

    @property
    def link(self) -> str:
        """Where the paper can be read."""
        return self._prose[1][-1]

    @property
    def says(self) -> tuple[str, ...]:
        """The claims of the paper and how the measurements bear on them, paragraph by paragraph."""
        return tuple(text for text in map(" ".join, self._prose[2:]) if not text.startswith(BEYOND))

    @property
    def beyond(self) -> tuple[str, ...]:
        """Claims that this package cannot check, with the reason."""
        return tuple(text.removeprefix(BEYOND) for text in map(" ".join, self._prose[2:]) if text.startswith(BEYOND))

    def decide(self, results: Results) -> Iterator[Check]:
        """Decide the claims for which all that they need was measured.

        Args:
            results: What was measured, by the name of the part.

        Yields:
            The checks, with their claims.
        """
        for check in self.checks:
            with contextlib.suppress(NotMeasuredError):
                decided = check(_Measured(results))
                if not isinstance(decided, Check):
                    refuse(f"{check.__name__} must return a Check", kind_of(decided), "Use agree(...), or Check(...).")
                if not (decided.claim or stated(check)):
                    rule = "a check states its claim in the second paragraph of its docstring"
                    refuse(rule, f"{check.__name__} without it", "Write the claim there.")
                missing: dict[str, Any] = {k: text for k, text in said(check).items() if not getattr(decided, k)}
                yield replace(decided, **missing)

    def check_settings(self, changes: Mapping[str, Any]) -> None:
        """Refuse settings that no part of the paper has.

        Args:
            changes: Settings by name.

        Raises:
            InputError: There is no such setting.
        """
        known = sorted({name for part in self.parts for name in part.settings()})
        for name in changes:
            if name not in known:
                refuse(f"the settings of {self.id} are {', '.join(known)}", name, "Choose one of these.")


def decide(holds: Iterable[bool]) -> Verdict:
    """Decide a claim by the parts of its rule.

    Args:
        holds: Whether each part holds.

    Returns:
        The verdict: all parts hold, some do, or none does.
    """
    parts = [bool(part) for part in holds]
    return "supported" if all(parts) else "partly supported" if any(parts) else "contradicted"


def agree(
    measured: ArrayLike,
    expected: ArrayLike,
    tolerance: ArrayLike,
    reason: str = "",
    *,
    unit: str = "",
    names: Iterable[object] = (),
    published: str = "",
    where: str = "",
) -> Check:
    """Return the check of numbers that must agree with expected ones, each within its tolerance.

    Args:
        measured: Measured numbers, [K] or one.
        expected: Expected numbers, [K] or one.
        tolerance: The largest difference with which a number still agrees, [K] or one.
        reason: The reason for this tolerance; empty where the docstring of the check says it.
        unit: What the tolerances are made of, such as `4 standard errors`; empty to print their largest value.
        names: A name of each number, [K], for the text; empty to name none.
        published: See `Check`.
        where: See `Check`.

    Returns:
        The check. A number that is not finite does not agree.

    Raises:
        InputError: There are no numbers, or their shapes do not fit.

    >>> agree([1.0, 2.0], [1.0, 2.5], 0.1, "rounding").verdict
    'partly supported'
    """
    ours, truth, within = (np.atleast_1d(np.asarray(x, np.float64)).ravel() for x in (measured, expected, tolerance))
    if not len(ours) or len(ours) != len(truth) or len(within) not in (1, len(ours)):
        refuse("a check compares as many numbers as are expected", f"{len(ours)} and {len(truth)}", "Pass equal lists.")
    with np.errstate(invalid="ignore"):
        off = np.abs(ours - truth)
        holds = off <= within
        share = off / np.maximum(np.broadcast_to(within, off.shape), 1e-300)
    worst = int(np.argmax(np.where(np.isfinite(share), share, np.inf)))
    labels = [str(name) for name in names] or [""] * len(ours)
    allowed = unit or f"{float(within.max()):.3g}"
    place = f" ({labels[worst].rstrip(':')})" if labels[worst] else ""
    far = f"{sum(holds)} of {len(holds)} agree, the farthest off by {share[worst]:.2g} of the tolerance{place}"
    return Check(
        _listed(ours, labels) + (f"; {far}" if len(ours) > 1 else ""),
        _listed(truth, labels),
        allowed,
        reason,
        f"rejected where a measured number differs from the expected one by more than {allowed}",
        tuple(holds),
        published,
        where,
        far if len(ours) > 6 else "",
    )


def agree_by_chance(
    measured: ArrayLike,
    expected: ArrayLike,
    error: ArrayLike,
    *,
    names: Iterable[object] = (),
    more: ArrayLike = 0.0,
    because: str = "",
    published: str = "",
) -> Check:
    """Return the check of measured numbers that differ from expected ones by chance alone.

    Args:
        measured: Measured numbers, [K].
        expected: Expected numbers, [K].
        error: Their standard errors, [K], of which four are allowed.
        names: As for `agree`.
        more: What is allowed besides, [K] or one; nothing by default.
        because: What else is allowed, and why; in words that follow "and".
        published: See `Check`.

    Returns:
        The check.
    """
    return agree(
        measured,
        expected,
        CHANCE * np.ravel(error) + np.ravel(more),
        f"Chance: {CHANCE} standard errors are exceeded once in 16,000 comparisons.",
        unit=f"{CHANCE} standard errors" + (f", and {because}" if because else ""),
        names=names,
        published=published,
    )


def listed(values: Iterable[float], form: str = ".3g") -> str:
    """Write numbers one after the other.

    Args:
        values: The numbers.
        form: How each is written.

    Returns:
        The text.

    >>> listed([1, 2.5], ".2f")
    '1.00, 2.50'
    """
    return ", ".join(f"{value:{form}}" for value in values)


def _listed(values: Any, labels: list[str], most: int = 12) -> str:
    """Numbers with their names; of many, the first and the last ones."""
    texts = [f"{label} {value:.4g}".strip() for label, value in zip(labels, values, strict=True)]
    if len(texts) > most:
        texts = [*texts[: most // 2], "...", *texts[-most // 2 :]]
    return ", ".join(texts)
