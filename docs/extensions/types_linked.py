"""Links of types: a class is documented under its public name, but type hints name the module that defines it."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.nodes import make_refnode


def public_name(target: str, known: dict[str, Any]) -> str | None:
    """Return the documented name of an object of ridgeformer, or None if there is none or more than one.

    Args:
        target: A name such as `ridgeformer.problems.problem.Problem`, or only `Problem`.
        known: All documented names.
    """
    last = target.rsplit(".", 1)[-1]
    found = [name for name in known if name.startswith("ridgeformer.") and name.rsplit(".", 1)[-1] == last]
    classes = [name for name in found if known[name].objtype in ("class", "exception", "data", "type", "function")]
    return min(classes, key=lambda name: (name.count("."), name)) if classes else None


def resolve(app: Any, env: Any, node: Any, text: nodes.Node) -> nodes.Node | None:
    """Resolve a reference to a class of ridgeformer that no page documents under this name."""
    if node.get("refdomain") != "py" or node.get("reftype") not in ("class", "exc", "obj", "data"):
        return None
    objects = env.domains["py"].objects
    target = node["reftarget"]
    if "." in target and not target.startswith("ridgeformer."):
        return None
    name = public_name(target, objects)
    if name is None:
        return None
    entry = objects[name]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text, name)


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("missing-reference", resolve, priority=400)  # before intersphinx
    return {"parallel_read_safe": True}
