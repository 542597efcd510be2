"""The shape of a paper: what it says, what is measured for it, and claims with the rules that can reject them."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.papers.results import NOTHING, Results as Results
from ridgeformer.plotting.panels import Panel, draw_panels
from ridgeformer.problems import BaseProblem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEYOND = "Not checked here: "
LABEL = re.compile(r"^(Claim|Expected|Tolerance|Reason|Rule|Where): ", re.M)  # of texts in docstrings, see `texts_of`
CHANCE = 4  # standard errors, which are exceeded once in 16,000 comparisons

Verdict = Literal["supported", "contradicted", "partly supported"]


class NotMeasuredError(LookupError):
    """A claim cannot be decided, because what it needs was not measured with these settings."""


class Parts(dict[str, Any]):
    """Results by the name of the part, with a rule for parts that are missing.

    Args:
        known: What was measured.
        missing: Is called with the name of a part that was not, and returns its result or raises an error.
    """

    def __init__(self, known: Mapping[str, Any], missing: Callable[[str], Any]) -> None:
        super().__init__(known)
        self._missing = missing

    def __missing__(self, name: str) -> Any:
        return self._missing(name)


def _not_measured(name: str) -> Any:
    raise NotMeasuredError(name)


@dataclass(frozen=True)
class Check:
    """A claim, the measurements that decide it, and the verdict.

    Attributes:
        measured: The measured numbers, in words.
        expected: The published or computed numbers that they are compared with, in words. This text, each of the next
            three and the place may be left to the docstring of the function, which goes before; see `texts_of`.
        tolerance: How far the measured numbers may be off, in words.
        reason: The reason for this tolerance.
        rule: The rule by which the claim is rejected.
        holds: Whether each part of the claim holds: truth values, and arrays of these.
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
    holds: Sequence[Any] | NDArray[np.bool_] = ()
    published: str = ""
    where: str = ""
    brief: str = ""
    claim: str = ""

    def __post_init__(self) -> None:
        holds = tuple(bool(part) for parts in self.holds for part in np.ravel(parts))
        if not holds:
            refuse("a check decides at least one part of its claim", "none", "Pass holds=[measured < expected].")
        object.__setattr__(self, "holds", holds)

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
        measure: Is called with the `Work` (see `running`) and with settings by name, and yields rows, which are dicts
            with the same names, or returns another value that JSON can hold. The defaults of its keyword arguments are
            the settings of the full version.
        quick: The settings that differ in the quick version, by name.
    """

    measure: Callable[..., Any]
    quick: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def __post_init__(self) -> None:
        if unknown := self.quick.keys() - self.settings().keys():
            names = ", ".join(self.settings()) or "none"
            refuse(f"the settings of {self.name} are {names}", ", ".join(sorted(unknown)), "Correct `quick`.")

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
        usual = {parameter.name: parameter.default for parameter in parameters}
        return {**usual, **(self.quick if quick else {}), **{k: v for k, v in changes.items() if k in usual}}


@dataclass(frozen=True)
class Picture:
    """A figure of a paper, drawn from stored results.

    Attributes:
        shown: Is called with the results and returns the panels of the figure, or a figure of matplotlib. Its docstring
            states the caption, after the first paragraph.
        note: What the caption says besides; nothing by default.
        columns: How many panels are side by side.
    """

    shown: Callable[[Results], Sequence[Panel] | Figure]
    note: str = ""
    columns: int = 3

    def draw(self, results: Results) -> Figure:
        """Draw the figure.

        Args:
            results: What was measured, by the name of the part.

        Returns:
            The figure.
        """
        shown = self.shown(results)
        return draw_panels(shown, self.columns) if isinstance(shown, Sequence) else shown

    @property
    def caption(self) -> str:
        """The caption of the picture."""
        return f"{claim_of(self.shown)} {self.note}".strip()


def texts_of(function: Callable[..., Any]) -> dict[str, str]:
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
    >>> texts_of(check)
    {'claim': 'Layers are steps of gradient descent.', 'rule': 'rejected where a layer is no step'}
    """
    text = "Claim: \n" + (inspect.getdoc(function) or "").partition("\n\n")[2]
    _, *parts = LABEL.split(text)
    return {name.lower(): " ".join(words.split()) for name, words in zip(parts[::2], parts[1::2], strict=True)}


def claim_of(function: Callable[..., Any]) -> str:
    """Return what the docstring of a function states after its first paragraph: a claim, a caption, or another text.

    Args:
        function: The function.

    Returns:
        The text, on one line.
    """
    return texts_of(function)["claim"]


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
            the first paragraph, with the texts of the `Check` that are the same for all results; see `texts_of`. The
            first one is the paper's line in the table of all papers.
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

    def __repr__(self) -> str:
        return f"Paper('{self.id}': {self.title})"

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
        available = Results(Parts(results.stored, _not_measured), results.parts)
        for check in self.checks:
            with contextlib.suppress(NotMeasuredError):
                decided = check(available)
                if not isinstance(decided, Check):
                    refuse(f"{check.__name__} must return a Check", kind_of(decided), "Use agree(...), or Check(...).")
                if not (decided.claim or claim_of(check)):
                    rule = "a check states its claim in the second paragraph of its docstring"
                    refuse(rule, f"{check.__name__} without it", "Write the claim there.")
                texts: dict[str, Any] = {name: text for name, text in texts_of(check).items() if text}
                yield replace(decided, **texts)

    def check_settings(self, changes: Mapping[str, Any]) -> None:
        """Refuse settings that no part of the paper has.

        Args:
            changes: Settings by name.

        Raises:
            InputError: There is no such setting.
        """
        names = sorted({name for part in self.parts for name in part.settings()})
        for name in changes:
            if name not in names:
                refuse(f"the settings of {self.id} are {', '.join(names)}", name, "Choose one of these.")


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
    tolerance: ArrayLike = 0.0,
    reason: str = "",
    *,
    error: ArrayLike = 0.0,
    unit: str = "",
    names: Iterable[object] = (),
    published: str = "",
) -> Check:
    """Return the check of numbers that must agree with expected ones, each within its tolerance.

    Args:
        measured: Measured numbers, of any shape.
        expected: Expected numbers, of the same shape.
        tolerance: The largest difference with which a number still agrees, of the same shape or one.
        reason: The reason for this tolerance; empty where the docstring of the check says it.
        error: Standard errors of the measured numbers, of the same shape or one: four of them are allowed besides.
        unit: What the tolerances are made of, such as `2 %`; empty to print their largest value, or, where only
            standard errors are allowed, to say so.
        names: A name of each number, for the text; empty to name none.
        published: See `Check`.

    Returns:
        The check. A number that is not finite does not agree.

    Raises:
        InputError: There are no numbers, or their shapes do not fit.

    >>> agree([1.0, 2.0], [1.0, 2.5], 0.1, "rounding").verdict
    'partly supported'
    >>> agree([1.0, 2.0], [1.0, 2.3], error=0.1).tolerance
    '4 standard errors'
    """
    ours, truth = (np.atleast_1d(np.asarray(x, np.float64)).ravel() for x in (measured, expected))
    within = np.ravel(CHANCE * np.ravel(error) + np.ravel(tolerance))
    if not len(ours) or len(ours) != len(truth) or len(within) not in (1, len(ours)):
        refuse("a check compares as many numbers as are expected", f"{len(ours)} and {len(truth)}", "Pass equal lists.")
    if np.any(error):
        unit = unit or f"{CHANCE} standard errors"
        reason = reason or f"Chance: {CHANCE} standard errors are exceeded once in 16,000 comparisons."
    with np.errstate(invalid="ignore"):
        off = np.abs(ours - truth)
        holds = off <= within
        share = off / np.maximum(np.broadcast_to(within, off.shape), 1e-300)
    worst = int(np.argmax(np.where(np.isfinite(share), share, np.inf)))
    labels, allowed = [str(name) for name in names] or [""] * len(ours), unit or f"{float(within.max()):.3g}"
    place = f" ({labels[worst].rstrip(':')})" if labels[worst] else ""
    far = f"{sum(holds)} of {len(holds)} agree, the farthest off by {share[worst]:.2g} of the tolerance{place}"
    return Check(
        _listed(ours, labels) + (f"; {far}" if len(ours) > 1 else ""),
        _listed(truth, labels),
        allowed,
        reason,
        f"rejected where a measured number differs from the expected one by more than {allowed}",
        holds,
        published,
        brief=far if len(ours) > 6 else "",
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
