"""The WebUI's buttons."""

from .ui_components import ToolButton


def create_refresh_button(component, refresh, arguments, elem_id):
    return ToolButton(value="refresh", elem_id=elem_id)
