"""What the WebUI has for scripts. ``Script`` lacks what this extension's scripts must have themselves."""

AlwaysVisible = object()
scripts_data = []
folder = None  # of the extension that is being loaded


def basedir():
    return folder


class Script:
    is_img2img = False  # the WebUI sets it to the tab of this instance

    def process(self, p, *args):
        pass
