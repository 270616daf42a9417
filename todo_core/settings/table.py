"""The table of settings in the docs, from their declaration."""

from __future__ import annotations

from .declaration import SETTINGS, Settings
from .setting import Setting


def markdown() -> str:
    """A Markdown table: name, default, what is allowed, infotext key, label and help."""
    head = ["| name | default | allowed | infotext | in the panel |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(_row(setting) for setting in SETTINGS.values())]) + "\n"


def _row(setting: Setting) -> str:
    default, allowed = f"`{setting.default!r}`", setting.allowed.replace("|", "\\|")
    panel = f"**{setting.label}.** {setting.help}"
    return f"| `{setting.name}` | {default} | {allowed} | `{setting.infotext_key}` | {panel}{_only_with(setting)} |"


def _only_with(setting: Setting) -> str:
    """Which methods use it, if not all of them do."""
    users = [m for m in ("downsample", "similarity", "cluster") if setting.used(Settings(method=m, target="all"))]
    return "" if len(users) == 3 else f" *Only {', '.join(users)}.*"
