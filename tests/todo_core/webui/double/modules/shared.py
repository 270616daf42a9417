"""The model of the moment, the user's options, and what the WebUI is doing."""

from types import SimpleNamespace

sd_model = None


class OptionInfo:
    def __init__(self, default, label):
        self.default, self.label = default, label


class Options(SimpleNamespace):
    """Values by attribute; an unknown name is an AttributeError."""

    def reset(self):
        """As after the WebUI's start, without extensions."""
        self.__dict__.clear()
        self.__dict__.update(data_labels={}, token_merging_ratio=0.0, token_merging_ratio_hr=0.0)
        self.__dict__.update(grid_save=True, grid_format="png", img_max_size_mp=200, grid_background_color="#ffffff")

    def add_option(self, key, info):
        self.data_labels[key] = info
        self.__dict__.setdefault(key, info.default)


class State(SimpleNamespace):
    def begin(self):
        self.__dict__.update(time_start=1.0, interrupted=False, skipped=False, stopping_generation=False)
        self.__dict__.update(job_count=-1, textinfo=None)


opts = Options()
opts.reset()
state = State()
state.begin()
